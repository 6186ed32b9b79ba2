//! Releases the units of orders, and their buyers' counts.
//!
//! The count is released first, at the buyer's home, and then the units, at the segment that gave
//! them. A crash in between leaves units that are still to be returned, which the ledger knows, and
//! never a count without an owner. Both steps may be repeated by any process.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Instant,
};

use domain::{Order, TakenOrder};
use futures::future::join_all;
use tokio::sync::oneshot;

use super::{ItemStock, home, reserve::unknown};
use crate::{StockError, script};

/// Orders in one call of a script.
const BATCH_MAX: usize = 1000;

/// An order whose units are to be released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The segment that gave the units.
    pub segment: u16,
    /// The order that has them, with its buyer and quantity.
    pub order: TakenOrder,
}

impl From<&Order> for Release {
    /// The units of the order's latest attempt.
    fn from(order: &Order) -> Self {
        Self {
            segment: order.segment,
            order: TakenOrder {
                id: order.take_id(),
                buyer: order.buyer.clone(),
                quantity: order.quantity,
            },
        }
    }
}

/// Orders by segment.
type BySegment<T> = BTreeMap<usize, Vec<T>>;

impl ItemStock {
    /// Releases the units of an order that has just ended: at once, or with others if the item has
    /// none and some have come back a moment ago. A caller who leaves meanwhile changes nothing.
    pub async fn release_on_the_beat(
        self: &Arc<Self>,
        release: Release,
    ) -> Result<u64, StockError> {
        if !self.admission.has_seen_fewer(1) {
            return self.release(&[release]).await;
        }
        let (done, released) = oneshot::channel();
        let (item, beat) = (Arc::clone(self), self.returns.of(Instant::now()));
        self.shared.runtime.spawn(async move {
            tokio::time::sleep_until(beat.into()).await;
            if let Err(Err(error)) = done.send(item.release(&[release]).await) {
                tracing::warn!(item = %item.id, %error, "could not return units, and their caller has left; a reconciler repeats what the ledger still misses");
            }
        });
        released.await.unwrap_or_else(|_| Err(unknown()))
    }

    /// Releases the units of the orders. Returns how many released them now and not before. If a
    /// segment does not respond or is halted for repair, its orders must be repeated; the other
    /// segments are not affected.
    pub async fn release(&self, releases: &[Release]) -> Result<u64, StockError> {
        let mut seen = HashSet::with_capacity(releases.len());
        let releases: Vec<_> = releases
            .iter()
            .filter(|release| self.has(release.segment) && seen.insert(release.order.id))
            .collect();
        let mut first_error = None;
        let failed_homes = self.release_counts(&releases, &mut first_error).await;
        let mut released = 0;
        for outcome in self.release_units(&releases, &failed_homes).await {
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

    /// Returns the homes that failed: the units of their buyers' orders must not return before the
    /// counts.
    async fn release_counts(
        &self,
        releases: &[&Release],
        first_error: &mut Option<StockError>,
    ) -> HashSet<usize> {
        let mut by_home: BySegment<&TakenOrder> = BTreeMap::new();
        for release in releases {
            let home = self.home_of(&release.order);
            if home != usize::from(release.segment) {
                by_home.entry(home).or_default().push(&release.order);
            }
        }
        let outcomes = join_all(by_home.into_iter().map(|(home, orders)| async move {
            (home, self.release_counts_at(home, &orders).await)
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

    async fn release_counts_at(
        &self,
        home: usize,
        orders: &[&TakenOrder],
    ) -> Result<(), StockError> {
        let margin_ms = self.shared.settings.forget_margin_ms();
        let (connection, keys) = (&self.shared.connection, &self.segments[home].keys);
        for orders in orders.chunks(BATCH_MAX) {
            script::release_count(connection, keys, margin_ms, orders).await?;
        }
        Ok(())
    }

    async fn release_units(
        &self,
        releases: &[&Release],
        failed_homes: &HashSet<usize>,
    ) -> Vec<Result<u64, StockError>> {
        let mut by_segment: BySegment<(&TakenOrder, bool)> = BTreeMap::new();
        for release in releases {
            let segment = usize::from(release.segment);
            let home = self.home_of(&release.order);
            if home == segment || !failed_homes.contains(&home) {
                let orders = by_segment.entry(segment).or_default();
                orders.push((&release.order, home == segment));
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
        let segment = &self.segments[segment];
        for orders in orders.chunks(BATCH_MAX) {
            let done = script::release(&self.shared.connection, &segment.keys, orders).await?;
            self.came_back(segment.number(), done.available);
            released += done.orders;
        }
        Ok(released)
    }
}
