//! Ends carts whose time is over: holds that were not paid, and carts whose placing was abandoned.
//!
//! The ledger changes first, by compare-and-set on the version that was read, all lines at once. If
//! a payment arrives concurrently, or a request that is still placing the cart, exactly one of the
//! two wins. A cart that has failed is looked at until no line of it can be recorded any more,
//! because a request that was under way may have taken units for one after the end.

use std::{sync::Arc, time::Instant};

use domain::{Cart, CartRefusal, CartState, RefusalReason};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use ledger::CartStep;
use supervision::ErrorLatch;

use crate::{
    ERRORS, Reconciler, ReconcilerError, clock,
    expire::{PAUSE_FACTOR, with_timeout},
    returns,
};

/// Carts of one batch. After a full one, the ledger belongs to the orders for a while.
const CART_BATCH_MAX: usize = 100;
/// Carts that are ended concurrently: each is a transaction of its own.
const CART_CONCURRENCY: usize = 8;

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let error_latch = ErrorLatch::new("carts", ERRORS);
    loop {
        match end_due(&reconciler).await {
            Ok(()) => error_latch.recovered(),
            Err(error) => error_latch.failed(&error),
        }
        if reconciler.pause(reconciler.settings.expiry_interval).await {
            return;
        }
    }
}

/// Ends batches until no cart is due, with a pause after each. A cart that cannot be ended does not
/// keep the others from their end.
async fn end_due(reconciler: &Reconciler) -> Result<(), ReconcilerError> {
    loop {
        let began = Instant::now();
        let now = clock::now(reconciler).await?;
        let due = reconciler.ledger.due_carts(now, CART_BATCH_MAX);
        let due = with_timeout(reconciler, due).await?;
        let found = due.len();
        let ended: Vec<_> = stream::iter(due)
            .map(|cart| end(reconciler, cart, now))
            .buffer_unordered(CART_CONCURRENCY)
            .collect()
            .await;
        for result in ended {
            result?;
        }
        let is_last = found < CART_BATCH_MAX;
        let pause = began.elapsed().mul_f64(PAUSE_FACTOR);
        if is_last || reconciler.pause(pause).await {
            return Ok(());
        }
    }
}

async fn end(reconciler: &Reconciler, cart: Cart, now: Timestamp) -> Result<(), ReconcilerError> {
    let step = match cart.state {
        CartState::Placing => CartStep {
            refusal: Some(CartRefusal {
                reason: RefusalReason::TimedOut,
                item: None,
            }),
            ..CartStep::to(&cart, CartState::Failed)
        },
        CartState::Failed => CartStep {
            is_settled: is_settled(reconciler, &cart, now).await?,
            ..CartStep::to(&cart, CartState::Failed)
        },
        _ => CartStep::to(&cart, CartState::Expired),
    };
    let stepped = with_timeout(reconciler, reconciler.ledger.step_cart(&step)).await?;
    let Some(stepped) = stepped else {
        return Ok(());
    };
    if cart.state != step.to {
        metrics::counter!("stockade_carts_total", "to" => step.to.as_str()).increment(1);
    }
    returns::return_orders(reconciler, &stepped.freed).await;
    Ok(())
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
