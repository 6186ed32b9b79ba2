//! Deletes the orders of archived items whose purge was requested, in steps with pauses.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{ItemId, OrderId};
use jiff::Timestamp;
use ledger::{Ledger, LedgerError, PurgeRequest, PurgeStep};
use supervision::ErrorLatch;

use crate::{ERRORS, Reconciler};

/// Orders that one transaction deletes.
const PURGE_BATCH: usize = 5_000;
/// How long to wait until orders whose money is to be returned are looked at again.
const WAIT_INTERVAL: Duration = Duration::from_secs(60);

/// Result of [`purge_once`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purged {
    /// The item's orders are deleted, now or before: so many.
    Done(u64),
    /// All are deleted but these, whose money is to be returned.
    Waits(u64),
    /// The item is not archived.
    NotArchived,
    /// It was archived at this time, which is not long enough ago.
    TooEarly(Timestamp),
}

/// Purges the item for `actor`, if it was archived before `archived_before`. `None`: there is no such
/// item. A purge that was interrupted is continued. Other processes may purge the item as well.
pub async fn purge_once(
    ledger: &dyn Ledger,
    id: &ItemId,
    archived_before: Timestamp,
    actor: &str,
) -> Result<Option<Purged>, LedgerError> {
    match ledger.request_purge(id, archived_before, actor).await? {
        PurgeRequest::NoItem => return Ok(None),
        PurgeRequest::NotArchived => return Ok(Some(Purged::NotArchived)),
        PurgeRequest::TooEarly(at) => return Ok(Some(Purged::TooEarly(at))),
        PurgeRequest::Noted | PurgeRequest::Purged => {}
    }
    let mut after: Option<OrderId> = None;
    loop {
        match ledger.purge(id, after, PURGE_BATCH).await? {
            PurgeStep::Continues(last) => after = last,
            PurgeStep::Done(orders) => return Ok(Some(Purged::Done(orders))),
            PurgeStep::Waits(orders) => return Ok(Some(Purged::Waits(orders))),
            PurgeStep::NotRequested => return Ok(Some(Purged::NotArchived)),
        }
    }
}

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let error_latch = ErrorLatch::new("purging items", ERRORS);
    let mut waiting = HashMap::new();
    while !reconciler.pause(reconciler.settings.purge_interval).await {
        match purge_all(&reconciler, &mut waiting).await {
            Ok(()) => error_latch.recovered(),
            Err(error) => error_latch.failed(&error),
        }
    }
}

async fn purge_all(
    reconciler: &Reconciler,
    waiting: &mut HashMap<ItemId, Instant>,
) -> Result<(), LedgerError> {
    let items = reconciler.ledger.items_to_purge().await?;
    waiting.retain(|id, until| items.contains(id) && *until > Instant::now());
    for id in items {
        if !waiting.contains_key(&id) && !purge(reconciler, &id).await? {
            waiting.insert(id, Instant::now() + WAIT_INTERVAL);
        }
    }
    Ok(())
}

/// Purges the item, and pauses after each step for as long as the step took. `false`: orders are left
/// whose money is to be returned.
async fn purge(reconciler: &Reconciler, id: &ItemId) -> Result<bool, LedgerError> {
    let mut after = None;
    loop {
        let started = Instant::now();
        match reconciler.ledger.purge(id, after, PURGE_BATCH).await? {
            PurgeStep::Continues(last) => after = last,
            PurgeStep::Waits(orders) => {
                tracing::info!(item = %id, orders, "purged the item, except orders whose money is to be returned");
                return Ok(false);
            }
            PurgeStep::Done(orders) => {
                metrics::counter!("stockade_purged_items_total").increment(1);
                tracing::info!(item = %id, orders, "purged the item");
                return Ok(true);
            }
            PurgeStep::NotRequested => return Ok(true),
        }
        if reconciler.pause(started.elapsed()).await {
            return Ok(true);
        }
    }
}
