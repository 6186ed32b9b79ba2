//! Settles the pending spillovers: finishes those that their process abandoned, and forgets final
//! ones.
//!
//! Every order that its home declined is in the list of its home until its spillover has been
//! finished and forgotten. Every step may be repeated by any process at any time, and the list
//! entry goes last, so a crash anywhere leaves work and no harm. The order of the steps keeps one
//! order from taking twice: final at home first; then every deadline passes (and the margin for
//! clocks); then the other segments forget, and home last.

use std::{sync::Arc, time::Duration};

use domain::{OrderId, SafetyCheck};
use futures::future::{join_all, try_join_all};

use super::ItemStock;
use crate::{
    StockError,
    decision::Decision,
    request::{Acknowledge, Reservation},
    script::{self, DueSpillover},
};

/// Spillovers in one page. The scripts' columns must stay below Lua's limit of unpacked values.
const PAGE_MAX: usize = 512;

/// Pages of one home in one run, so that one item does not delay the others.
const PAGES_MAX: usize = 64;

/// Time limit for repeating a reservation.
const REPEAT_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    /// Abandoned spillovers that were repeated to their end.
    pub finished: usize,
    /// Final spillovers that were forgotten.
    pub forgotten: usize,
}

impl ItemStock {
    /// Settles every spillover that is due now.
    pub async fn settle_spillovers(self: &Arc<Self>) -> Result<Settled, StockError> {
        let mut all = Settled::default();
        if !SafetyCheck::Settlement.is_enabled() {
            return Ok(all);
        }
        let homes = (0..self.segments.len()).map(|home| self.settle_from(home));
        for settled in try_join_all(homes).await? {
            all.finished += settled.finished;
            all.forgotten += settled.forgotten;
        }
        Ok(all)
    }

    /// Page by page. A page that cannot be forgotten, because a segment does not respond, is
    /// skipped, so that it does not keep the spillovers behind it from being finished. Its error is
    /// returned at the end.
    async fn settle_from(&self, home: usize) -> Result<Settled, StockError> {
        let (mut settled, mut skip, mut last_error) = (Settled::default(), 0, None);
        let (connection, keys) = (&self.shared.connection, &self.segments[home].keys);
        for _ in 0..PAGES_MAX {
            let page = script::due_spillovers(connection, keys, PAGE_MAX, skip).await?;
            if page.is_empty() {
                break;
            }
            let (finished, forgotten) = self.settle_page(home, &page).await;
            let forgotten = forgotten.unwrap_or_else(|error| {
                last_error = Some(error);
                0
            });
            settled.finished += finished;
            settled.forgotten += forgotten;
            // Settled ones are not due any more.
            skip += page.len().saturating_sub(finished + forgotten);
        }
        last_error.map_or(Ok(settled), Err)
    }

    async fn settle_page(
        &self,
        home: usize,
        page: &[DueSpillover],
    ) -> (usize, Result<usize, StockError>) {
        let (unfinished, finals): (Vec<_>, Vec<_>) = page
            .iter()
            .partition(|due| matches!(due.decision, Some(Decision::Declined { .. })));
        let finished = join_all(unfinished.into_iter().map(|due| self.repeat(due))).await;
        (
            finished.into_iter().filter(|finished| *finished).count(),
            self.forget(home, &finals).await,
        )
    }

    /// Repeating the reservation finishes the spillover, as sold out or given up if every segment
    /// declines. If it fails, the spillover is still in the
    /// list.
    async fn repeat(&self, due: &DueSpillover) -> bool {
        let reservation = Reservation {
            order: due.order.id,
            buyer: due.order.buyer.clone(),
            quantity: due.order.quantity,
            acknowledge: Acknowledge::Accepted,
            within: REPEAT_TIMEOUT,
        };
        self.repeat_order(reservation).await.is_ok()
    }

    async fn forget(&self, home: usize, finals: &[&DueSpillover]) -> Result<usize, StockError> {
        if finals.is_empty() {
            return Ok(0);
        }
        let connection = &self.shared.connection;
        let margin_ms = self.shared.settings.forget_margin_ms();
        let declined: Vec<(OrderId, i64)> = finals
            .iter()
            .map(|due| (due.order.id, until_ms(due, margin_ms)))
            .collect();
        let (before, after) = (&self.segments[..home], &self.segments[home + 1..]);
        try_join_all(
            before
                .iter()
                .chain(after)
                .map(|segment| script::forget_declined(connection, &segment.keys, &declined)),
        )
        .await?;
        let home = &self.segments[home].keys;
        let forgotten = script::forget_spillover(connection, home, finals).await?;
        Ok(usize::try_from(forgotten).unwrap_or(usize::MAX))
    }
}

/// The latest deadline of the order's attempts. A decision that nothing was taken has it. An order
/// that was taken is never reserved again, so for it the due time is enough, even if another
/// process had another margin.
fn until_ms(due: &DueSpillover, margin_ms: i64) -> i64 {
    match due.decision {
        Some(Decision::SoldOut { until_ms, .. } | Decision::GivenUp { until_ms, .. }) => until_ms,
        _ => due.due_ms - margin_ms,
    }
}
