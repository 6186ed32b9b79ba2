//! Ends what is due, batch by batch: holds, and carts.

use std::{
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use domain::Order;
use ledger::Ledger;

use crate::{Reconciler, ReconcilerError, batch_size::BatchSize, returns};

/// Orders whose holds one transaction ends, alone or with their carts. Each transaction has a cost of
/// its own, so with fewer at a time the units would be back much later.
const BATCH: RangeInclusive<usize> = 64..=500;
/// What such a transaction may take, with its wait for the ledger. Orders of other items share the
/// processors with it.
const BATCH_TIME: Duration = Duration::from_millis(5);
/// The same on a ledger with one writer. There an order waits for it, and then for the one that records
/// what has returned.
const BATCH_TIME_OF_ONE_WRITER: Duration = Duration::from_millis(2);
/// After each batch but the last, the pause is so many times as long as it took: the ledger belongs to
/// the orders for a third of the time.
const PAUSE_FACTOR: f64 = 0.5;

pub(crate) fn batch_size(ledger: &dyn Ledger) -> BatchSize {
    let time = match ledger.has_one_writer() {
        true => BATCH_TIME_OF_ONE_WRITER,
        false => BATCH_TIME,
    };
    BatchSize::within(BATCH, time)
}

/// What a ledger has to end.
pub(crate) trait Due {
    /// Ends the next batch, of about so many orders. Returns the orders whose units are to return.
    async fn end_next(
        &mut self,
        reconciler: &Reconciler,
        size: &mut BatchSize,
    ) -> Result<Vec<Order>, ReconcilerError>;

    /// Nothing is left, but for what is [`Stuck`](crate::stuck::Stuck).
    fn are_ended(&self) -> bool;
}

/// Ends all of it, with a pause after each batch. While the units of one batch return to their segments,
/// the ledger ends the next one.
pub(crate) async fn end_all(
    reconciler: &Reconciler,
    due: &mut impl Due,
    size: &mut BatchSize,
) -> Result<(), ReconcilerError> {
    let mut freed: Vec<Order> = Vec::new();
    loop {
        let began = Instant::now();
        let (_, next) = tokio::join!(
            returns::return_orders(reconciler, &freed),
            due.end_next(reconciler, size)
        );
        freed = next?;
        if due.are_ended() || pause(reconciler, began).await {
            returns::return_orders(reconciler, &freed).await;
            return Ok(());
        }
    }
}

/// Pauses after work that began then. `true`: the reconciler stops.
pub(crate) async fn pause(reconciler: &Reconciler, began: Instant) -> bool {
    reconciler
        .pause(began.elapsed().mul_f64(PAUSE_FACTOR))
        .await
}
