//! Looks up overdue orders in the ledger: the notification that they were recorded may have been
//! lost.

use std::{collections::HashMap, sync::Arc, time::Duration};

use domain::{EntryId, OrderId, OrderState, SegmentKey};
use ledger::LedgerError;
use stock::Resolution;
use tokio_util::sync::CancellationToken;

use crate::Engine;

/// An order that waits longer is overdue. It has waited for several recording passes.
const OVERDUE_AFTER: Duration = Duration::from_millis(250);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Resolves overdue orders until `stop`.
pub async fn watch_overdue(engine: Arc<Engine>, stop: CancellationToken) {
    while tokio::time::timeout(POLL_INTERVAL, stop.cancelled())
        .await
        .is_err()
    {
        for (segment, orders) in engine.stock.overdue(OVERDUE_AFTER) {
            if let Err(error) = resolve_overdue(&engine, &segment, &orders).await {
                tracing::debug!(%segment, %error, "could not look up overdue orders in the ledger");
            }
        }
    }
}

async fn resolve_overdue(
    engine: &Engine,
    segment: &SegmentKey,
    orders: &[(EntryId, OrderId)],
) -> Result<(), LedgerError> {
    let rows = engine.ledger.segments(&segment.item).await?;
    let checkpoint = rows
        .into_iter()
        .find(|row| row.key == *segment)
        .and_then(|row| row.checkpoint);
    // The ledger has the final state of orders up to the checkpoint only. The others are not
    // recorded yet.
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

/// Redis lost an order whose entry is before the checkpoint and that the ledger does not have:
/// after a failover, new entries took the checkpoint past it.
fn fate(state: Option<&OrderState>) -> Resolution {
    match state {
        Some(OrderState::Rejected) => Resolution::Rejected,
        Some(_) => Resolution::Recorded,
        None => Resolution::Lost,
    }
}
