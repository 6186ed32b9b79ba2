//! Returns the units of ended orders to their segments: of orders that this process has just ended,
//! and of orders whose return was interrupted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use domain::{ItemId, Order, TakenOrder};
use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use ledger::{ItemScope, LedgerError, PendingReturn};
use stock::Release;
use supervision::ErrorLatch;

use crate::{ERRORS, Reconciler, ReconcilerError};

/// Maximum number of returns in a batch.
const RETURN_BATCH_MAX: usize = 5000;
/// Items whose units return concurrently. Those of a master that hangs wait for their time limit, and the
/// others must not wait with them.
const CONCURRENCY: usize = 64;

type ByItem = BTreeMap<ItemId, Vec<Release>>;

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let error_latch = ErrorLatch::new("returns", ERRORS);
    loop {
        match repeat_all_pending(&reconciler).await {
            Ok(()) => error_latch.recovered(),
            Err(error) => error_latch.failed(&error),
        }
        if reconciler.pause(reconciler.settings.return_delay).await {
            return;
        }
    }
}

/// As long as units of some items cannot return, another search finds what is behind them.
async fn repeat_all_pending(reconciler: &Reconciler) -> Result<(), LedgerError> {
    let (mut stuck, mut pending) = (Vec::new(), 0);
    loop {
        let found = find_pending(reconciler, ItemScope::Except(&stuck)).await?;
        let failed = return_units(reconciler, &found).await;
        if number(found.values()) < RETURN_BATCH_MAX || failed.is_empty() {
            pending += number(found.values());
            break;
        }
        pending += number(failed.iter().filter_map(|item| found.get(item)));
        stuck.extend(failed);
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    metrics::gauge!("stockade_pending_returns").set(pending as f64);
    Ok(())
}

fn number<'a>(returns: impl Iterator<Item = &'a Vec<Release>>) -> usize {
    returns.map(Vec::len).sum()
}

/// Repeats the returns of this item that have been pending for longer than `return_delay`. Repeating
/// a return that was made and is not recorded yet changes nothing.
pub(crate) async fn repeat_pending(
    reconciler: &Reconciler,
    item: &ItemId,
) -> Result<(), LedgerError> {
    let found = find_pending(reconciler, ItemScope::Only(item)).await?;
    return_units(reconciler, &found).await;
    Ok(())
}

/// Returns that have been pending for longer than `return_delay`.
async fn find_pending(reconciler: &Reconciler, of: ItemScope<'_>) -> Result<ByItem, LedgerError> {
    let delay =
        SignedDuration::try_from(reconciler.settings.return_delay).unwrap_or(SignedDuration::ZERO);
    let before = Timestamp::now()
        .checked_sub(delay)
        .unwrap_or(Timestamp::MIN);
    let pending = reconciler
        .ledger
        .pending_returns(of, before, RETURN_BATCH_MAX)
        .await?;
    let mut by_item = ByItem::new();
    for PendingReturn {
        id,
        segment,
        buyer,
        quantity,
    } in pending
    {
        let release = Release {
            segment: segment.segment,
            order: TakenOrder {
                id,
                buyer,
                quantity,
            },
        };
        by_item.entry(segment.item).or_default().push(release);
    }
    Ok(by_item)
}

/// Returns the units of orders that have just ended. A failed return stays pending in the ledger,
/// and is repeated.
pub(crate) async fn return_orders(reconciler: &Reconciler, orders: &[Order]) {
    let mut by_item = ByItem::new();
    for order in orders {
        by_item
            .entry(order.item.clone())
            .or_default()
            .push(Release::from(order));
    }
    return_units(reconciler, &by_item).await;
}

/// Returns the items of which not all units could return.
async fn return_units(reconciler: &Reconciler, by_item: &ByItem) -> BTreeSet<ItemId> {
    let returns = by_item.iter();
    let returns = returns.map(|(id, returns)| has_returned(reconciler, id, returns));
    // A list first: futures that borrow what an iterator yields are not known to be `Send`.
    let returns: Vec<_> = returns.collect();
    let mut returned = stream::iter(returns).buffer_unordered(CONCURRENCY);
    let mut failed = BTreeSet::new();
    while let Some((id, has_returned)) = returned.next().await {
        if !has_returned {
            failed.insert(id.clone());
        }
    }
    failed
}

async fn has_returned<'a>(
    reconciler: &Reconciler,
    id: &'a ItemId,
    returns: &[Release],
) -> (&'a ItemId, bool) {
    let returned = return_of(reconciler, id, returns).await;
    if let Err(error) = &returned {
        tracing::debug!(item = %id, error = error as &dyn std::error::Error, "could not return all units yet");
    }
    (id, returned.is_ok())
}

async fn return_of(
    reconciler: &Reconciler,
    id: &ItemId,
    returns: &[Release],
) -> Result<(), ReconcilerError> {
    if let Some(item) = reconciler.item_stock(id).await? {
        let released = item.release(returns).await?;
        metrics::counter!("stockade_released_orders_total").increment(released);
    }
    Ok(())
}
