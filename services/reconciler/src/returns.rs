//! Brings the units of ended orders home: those that this process has just ended, and those that somebody left half-way.

use std::{collections::BTreeMap, sync::Arc};

use domain::{ItemId, Order, TakenOrder};
use jiff::{SignedDuration, Timestamp};
use ledger::{LedgerError, PendingReturn};
use stock::GiveBack;

use crate::{Reconciler, trouble::Trouble};

/// Returns in one go.
const AT_ONCE: usize = 5000;

type ByItem = BTreeMap<ItemId, Vec<GiveBack>>;

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let trouble = Trouble::new("returns");
    loop {
        match repeat_all_pending(&reconciler).await {
            Ok(()) => trouble.is_well(),
            Err(error) => trouble.failed(&error),
        }
        if reconciler.pause(reconciler.settings.return_after).await {
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

/// Gives back what of this item, or of all, has been pending for too long, and says how many that are. What has been given back meanwhile, and is only
/// not recorded yet, changes nothing.
pub(crate) async fn repeat_pending(
    reconciler: &Reconciler,
    item: Option<&ItemId>,
) -> Result<usize, LedgerError> {
    let patience =
        SignedDuration::try_from(reconciler.settings.return_after).unwrap_or(SignedDuration::ZERO);
    let before = Timestamp::now()
        .checked_sub(patience)
        .unwrap_or(Timestamp::MIN);
    let pending = reconciler
        .ledger
        .pending_returns(item, before, AT_ONCE)
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
        let back = GiveBack {
            segment: segment.segment,
            order: TakenOrder {
                id,
                buyer,
                quantity,
            },
        };
        by_item.entry(segment.item).or_default().push(back);
    }
    give_back(reconciler, by_item).await;
    Ok(found)
}

/// Gives back what orders had that have just ended. What fails is pending in the ledger, and is repeated.
pub(crate) async fn give_back_orders(reconciler: &Reconciler, orders: &[Order]) {
    let mut by_item = ByItem::new();
    for order in orders {
        let taken = TakenOrder {
            id: order.take_id(),
            buyer: order.buyer.clone(),
            quantity: order.quantity,
        };
        by_item
            .entry(order.item.clone())
            .or_default()
            .push(GiveBack {
                segment: order.segment,
                order: taken,
            });
    }
    give_back(reconciler, by_item).await;
}

async fn give_back(reconciler: &Reconciler, by_item: ByItem) {
    for (id, returns) in by_item {
        let item = match reconciler.item_stock(&id).await {
            Ok(Some(item)) => item,
            Ok(None) => continue,
            Err(error) => {
                tracing::debug!(item = %id, %error, "units did not go back yet");
                continue;
            }
        };
        match item.give_back(&returns).await {
            Ok(released) => {
                metrics::counter!("stockade_given_back_orders_total").increment(released)
            }
            Err(error) => tracing::debug!(item = %id, %error, "units did not all go back yet"),
        }
    }
}
