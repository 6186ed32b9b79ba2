//! Asks the ledger for orders that have waited too long: the message that they were recorded may have been lost.

use std::{collections::HashMap, sync::Arc, time::Duration};

use domain::{EntryId, OrderId, OrderState, SegmentKey};
use ledger::LedgerError;
use stock::Fate;
use tokio_util::sync::CancellationToken;

use crate::Engine;

/// An order that has waited this long for a message has waited for several recordings.
const PATIENCE: Duration = Duration::from_millis(250);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Looks until `stop`.
pub async fn watch_overdue(engine: Arc<Engine>, stop: CancellationToken) {
    while tokio::time::timeout(LOOK_EVERY, stop.cancelled())
        .await
        .is_err()
    {
        for (segment, orders) in engine.stock.overdue(PATIENCE) {
            if let Err(error) = ask_ledger(&engine, &segment, &orders).await {
                tracing::debug!(%segment, %error, "the ledger could not be asked for overdue orders");
            }
        }
    }
}

async fn ask_ledger(
    engine: &Engine,
    segment: &SegmentKey,
    orders: &[(EntryId, OrderId)],
) -> Result<(), LedgerError> {
    let rows = engine.ledger.segments(&segment.item).await?;
    let checkpoint = rows
        .into_iter()
        .find(|row| row.key == *segment)
        .and_then(|row| row.checkpoint);
    // Whatever lies before the checkpoint has its final word in `orders`; the rest need not be asked for.
    let recorded: Vec<OrderId> = orders
        .iter()
        .filter(|(entry, _)| Some(*entry) <= checkpoint)
        .map(|(_, order)| *order)
        .collect();
    if recorded.is_empty() {
        return Ok(());
    }
    let known: HashMap<_, _> = engine
        .ledger
        .recorded_among(&recorded)
        .await?
        .into_iter()
        .collect();
    let fates = recorded
        .into_iter()
        .map(|order| (order, fate(known.get(&order))))
        .collect();
    engine.stock.resolve(segment, &fates);
    Ok(())
}

/// An order whose entry lies before the checkpoint and that the ledger does not have was lost by Redis: a failover, and the new entries lie behind it.
fn fate(state: Option<&OrderState>) -> Fate {
    match state {
        Some(OrderState::Rejected) => Fate::Rejected,
        Some(_) => Fate::Recorded,
        None => Fate::Lost,
    }
}
