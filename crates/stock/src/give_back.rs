//! Gives the units of orders back, and their buyers' counts.
//!
//! The count goes back first, at the buyer's home, and then the units, at the segment that gave them. So a crash in between leaves units that are
//! still to be returned, which the ledger knows of, and never a count that nobody knows of. Both steps may be repeated by anybody.

use std::collections::{BTreeMap, HashSet};

use domain::TakenOrder;
use futures::future::join_all;

use crate::{ItemStock, StockError, item::home, script};

/// Orders in one call of a script.
const AT_ONCE: usize = 1000;

/// An order whose units are to be given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GiveBack {
    /// The segment that gave them.
    pub segment: u16,
    /// Under which id, whose, and how many.
    pub order: TakenOrder,
}

/// Orders by segment.
type BySegment<T> = BTreeMap<usize, Vec<T>>;

impl ItemStock {
    /// Gives back what the orders took, and says how many gave back now and not before. What could not be given back (a segment does not answer, or
    /// is being mended) is to be repeated; the other segments are not kept from it.
    pub async fn give_back(&self, returns: &[GiveBack]) -> Result<u64, StockError> {
        let mut seen = HashSet::with_capacity(returns.len());
        let returns: Vec<_> = returns
            .iter()
            .filter(|back| self.has(back.segment) && seen.insert(back.order.id))
            .collect();
        let mut first_error = None;
        let failed_homes = self.give_back_counts(&returns, &mut first_error).await;
        let mut released = 0;
        for outcome in self.release_all(&returns, &failed_homes).await {
            match outcome {
                Ok(orders) => released += orders,
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(released), Err)
    }

    fn has(&self, segment: u16) -> bool {
        usize::from(segment) < self.segments.len()
    }

    fn home_of(&self, order: &TakenOrder) -> usize {
        home(&order.buyer, self.segments.len())
    }

    /// Returns the homes that did not answer: the units of their buyers' orders must not go back before the counts.
    async fn give_back_counts(
        &self,
        returns: &[&GiveBack],
        first_error: &mut Option<StockError>,
    ) -> HashSet<usize> {
        let mut by_home: BySegment<&TakenOrder> = BTreeMap::new();
        for back in returns {
            let home = self.home_of(&back.order);
            if home != usize::from(back.segment) {
                by_home.entry(home).or_default().push(&back.order);
            }
        }
        let outcomes = join_all(by_home.into_iter().map(|(home, orders)| async move {
            (home, self.give_back_counts_at(home, &orders).await)
        }));
        let mut failed = HashSet::new();
        for (home, outcome) in outcomes.await {
            if let Err(error) = outcome {
                failed.insert(home);
                first_error.get_or_insert(error);
            }
        }
        failed
    }

    async fn give_back_counts_at(
        &self,
        home: usize,
        orders: &[&TakenOrder],
    ) -> Result<(), StockError> {
        let margin_ms = self.shared.settings.forget_margin_ms();
        for orders in orders.chunks(AT_ONCE) {
            script::give_back_count(
                &self.shared.connection,
                &self.segments[home].keys,
                margin_ms,
                orders,
            )
            .await?;
        }
        Ok(())
    }

    async fn release_all(
        &self,
        returns: &[&GiveBack],
        failed_homes: &HashSet<usize>,
    ) -> Vec<Result<u64, StockError>> {
        let mut by_segment: BySegment<(&TakenOrder, bool)> = BTreeMap::new();
        for back in returns {
            let (segment, home) = (usize::from(back.segment), self.home_of(&back.order));
            if home == segment || !failed_homes.contains(&home) {
                by_segment
                    .entry(segment)
                    .or_default()
                    .push((&back.order, home == segment));
            }
        }
        join_all(
            by_segment
                .into_iter()
                .map(|(segment, orders)| async move { self.release_at(segment, &orders).await }),
        )
        .await
    }

    async fn release_at(
        &self,
        segment: usize,
        orders: &[(&TakenOrder, bool)],
    ) -> Result<u64, StockError> {
        let mut released = 0;
        for orders in orders.chunks(AT_ONCE) {
            let done = script::release(
                &self.shared.connection,
                &self.segments[segment].keys,
                orders,
            )
            .await?;
            self.came_back(self.segments[segment].number(), done.available);
            released += done.orders;
        }
        Ok(released)
    }
}
