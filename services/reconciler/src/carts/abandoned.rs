//! Carts whose placing was abandoned, and carts that have failed.
//!
//! A cart that has failed is looked at until no line of it can be recorded any more, because a request
//! that was under way may have taken units for one after the end.

use std::{sync::Arc, time::Instant};

use domain::{Cart, CartRefusal, CartState, ItemId, RefusalReason};
use jiff::Timestamp;
use ledger::CartStep;
use supervision::ErrorLatch;

use super::{SEARCH_MAX, items, take};
use crate::{
    ERRORS, Reconciler, ReconcilerError, clock, due,
    expire::with_timeout,
    stuck::{Part, Stuck},
};

/// The pause between two passes, in intervals of the expiry. Few carts are abandoned.
const INTERVAL_FACTOR: u32 = 5;

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let error_latch = ErrorLatch::new("the end of abandoned carts", ERRORS);
    let interval = reconciler.settings.expiry_interval * INTERVAL_FACTOR;
    loop {
        match end_due(&reconciler).await {
            Ok(()) => error_latch.recovered(),
            Err(error) => error_latch.failed(&error),
        }
        if reconciler.pause(interval).await {
            return;
        }
    }
}

/// Ends carts until none is due, but for those of sales that are stuck.
async fn end_due(reconciler: &Reconciler) -> Result<(), ReconcilerError> {
    let mut stuck = Stuck::default();
    loop {
        let began = Instant::now();
        let now = clock::now(reconciler).await?;
        let due = reconciler
            .ledger
            .abandoned_carts(stuck.items(), now, SEARCH_MAX);
        let due = with_timeout(reconciler, due).await?;
        let is_full = due.len() >= SEARCH_MAX;
        let carts = due.into_iter().map(|cart| AbandonedCart { cart, now });
        let carts = carts.collect();
        // Without progress, another search would find the same.
        let has_progressed = stuck.end_each(reconciler, carts).await?;
        if !is_full || !has_progressed || due::pause(reconciler, began).await {
            return stuck.into_result();
        }
    }
}

/// A cart that is being placed, or has failed, by the time of a search.
struct AbandonedCart {
    cart: Cart,
    now: Timestamp,
}

impl Part for AbandonedCart {
    fn items(&self) -> Vec<ItemId> {
        items(&self.cart)
    }

    async fn end(self, reconciler: &Reconciler) -> Result<(), ReconcilerError> {
        let Self { cart, now } = self;
        let failure = CartStep::to(&cart, CartState::Failed);
        let step = match cart.state {
            CartState::Failed => CartStep {
                is_settled: is_settled(reconciler, &cart, now).await?,
                ..failure
            },
            _ => CartStep {
                refusal: Some(CartRefusal {
                    reason: RefusalReason::TimedOut,
                    item: None,
                }),
                ..failure
            },
        };
        take(reconciler, &step).await
    }
}

/// Whether no line can be recorded any more: no request may take units for the cart, no spillover
/// of a line is open, and no outbox has a line that the ledger lacks.
async fn is_settled(
    reconciler: &Reconciler,
    cart: &Cart,
    now: Timestamp,
) -> Result<bool, ReconcilerError> {
    if CartStep::may_take(cart, now) {
        return Ok(false);
    }
    for line in &cart.lines {
        let Some(item) = reconciler.item_stock(&line.item).await? else {
            continue;
        };
        let recorded = reconciler.ledger.order(line.order).await?;
        if recorded.is_none()
            && (item.is_undecided(&cart.buyer, line.order).await?
                || item.find_unrecorded(line.order).await?.is_some())
        {
            return Ok(false);
        }
    }
    Ok(true)
}
