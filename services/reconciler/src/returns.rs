//! Returns the units of ended orders to their segments: of orders that this process has just ended,
//! and of orders whose return was interrupted.

use std::{collections::BTreeMap, sync::Arc};

use domain::{ItemId, Order, TakenOrder};
use jiff::{SignedDuration, Timestamp};
use ledger::{LedgerError, PendingReturn};
use stock::Release;
use supervision::ErrorLatch;

use crate::{ERRORS, Reconciler};

/// Maximum number of returns in a batch.
const RETURN_BATCH_MAX: usize = 5000;

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

async fn repeat_all_pending(reconciler: &Reconciler) -> Result<(), LedgerError> {
    let pending = repeat_pending(reconciler, None).await?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    metrics::gauge!("stockade_pending_returns").set(pending as f64);
    Ok(())
}

/// Repeats the returns of this item, or of all items, that have been pending for longer than
/// `return_delay`, and returns their number. Repeating a return that was made and is not recorded
/// yet changes nothing.
pub(crate) async fn repeat_pending(
    reconciler: &Reconciler,
    item: Option<&ItemId>,
) -> Result<usize, LedgerError> {
    let delay =
        SignedDuration::try_from(reconciler.settings.return_delay).unwrap_or(SignedDuration::ZERO);
    let before = Timestamp::now()
        .checked_sub(delay)
        .unwrap_or(Timestamp::MIN);
    let pending = reconciler
        .ledger
        .pending_returns(item, before, RETURN_BATCH_MAX)
        .await?;
    let found = pending.len();
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
    return_units(reconciler, by_item).await;
    Ok(found)
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
    return_units(reconciler, by_item).await;
}

async fn return_units(reconciler: &Reconciler, by_item: ByItem) {
    for (id, returns) in by_item {
        let item = match reconciler.item_stock(&id).await {
            Ok(Some(item)) => item,
            Ok(None) => continue,
            Err(error) => {
                tracing::debug!(item = %id, %error, "could not return units yet");
                continue;
            }
        };
        match item.release(&returns).await {
            Ok(released) => metrics::counter!("stockade_released_orders_total").increment(released),
            Err(error) => tracing::debug!(item = %id, %error, "could not return all units yet"),
        }
    }
}
