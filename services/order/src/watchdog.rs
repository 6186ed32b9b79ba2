//! Asks the ledger for orders that have waited too long: the message that they were recorded may have been lost.

use std::{sync::Arc, time::Duration};

use domain::{OrderId, SegmentKey};
use ledger::LedgerError;
use tokio_util::sync::CancellationToken;

use crate::Engine;

/// An order that has waited this long for a message has waited for several recordings.
const PATIENCE: Duration = Duration::from_millis(250);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Looks until `stop`.
pub async fn watch_overdue(engine: Arc<Engine>, stop: CancellationToken) {
    while tokio::time::timeout(LOOK_EVERY, stop.cancelled()).await.is_err() {
        for (segment, orders) in engine.stock.overdue(PATIENCE) {
            if let Err(error) = ask_ledger(&engine, &segment, &orders).await {
                tracing::debug!(%segment, %error, "the ledger could not be asked for overdue orders");
            }
        }
    }
}

async fn ask_ledger(engine: &Engine, segment: &SegmentKey, orders: &[OrderId]) -> Result<(), LedgerError> {
    // The checkpoint first: whatever lies before it has its final word in `orders`.
    let rows = engine.ledger.segments(&segment.item).await?;
    let checkpoint = rows.into_iter().find(|row| row.key == *segment).and_then(|row| row.checkpoint);
    let Some(checkpoint) = checkpoint else { return Ok(()) };
    let rejected = engine.ledger.rejected_among(orders).await?;
    engine.stock.recorded(segment, checkpoint, &rejected);
    Ok(())
}
