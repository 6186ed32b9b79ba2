//! Returns the units of ended orders to their segments: of orders that this process has just ended,
//! and of orders whose return was interrupted.

use std::{collections::BTreeMap, sync::Arc};

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

/// A return stays pending until it is recorded, and as long as it fails. So each search leaves out the
/// items of the ones before, and finds what is behind them.
async fn repeat_all_pending(reconciler: &Reconciler) -> Result<(), LedgerError> {
    let (mut repeated, mut pending) = (Vec::new(), 0);
    loop {
        let found = find_pending(reconciler, ItemScope::Except(&repeated)).await?;
        return_units(reconciler, &found).await;
        let number = found.values().map(Vec::len).sum::<usize>();
        pending += number;
        if number < RETURN_BATCH_MAX || reconciler.stop.is_cancelled() {
            break;
        }
        repeated.extend(found.into_keys());
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    metrics::gauge!("stockade_pending_returns").set(pending as f64);
    Ok(())
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

async fn return_units(reconciler: &Reconciler, by_item: &ByItem) {
    let returns = by_item.iter();
    let returns = returns.map(|(id, returns)| return_or_log(reconciler, id, returns));
    // A list first: futures that borrow what an iterator yields are not known to be `Send`.
    let returns: Vec<_> = returns.collect();
    let returned = stream::iter(returns).buffer_unordered(CONCURRENCY);
    returned.collect::<()>().await;
}

async fn return_or_log(reconciler: &Reconciler, id: &ItemId, returns: &[Release]) {
    match return_of(reconciler, id, returns).await {
        Ok(released) => metrics::counter!("stockade_released_orders_total").increment(released),
        Err(error) => {
            tracing::debug!(item = %id, error = &error as &dyn std::error::Error, "could not return all units yet");
        }
    }
}

async fn return_of(
    reconciler: &Reconciler,
    id: &ItemId,
    returns: &[Release],
) -> Result<u64, ReconcilerError> {
    match reconciler.item_stock(id).await? {
        Some(item) => Ok(item.release(returns).await?),
        None => Ok(0),
    }
}
