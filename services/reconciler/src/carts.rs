//! Ends carts whose time is over: holds that were not paid, and carts whose placing was abandoned.
//!
//! The ledger changes first, by compare-and-set on the version that was read, all lines at once. If
//! a payment arrives concurrently, or a request that is still placing the cart, exactly one of the
//! two wins.

pub(crate) mod abandoned;
pub(crate) mod held;

use domain::{Cart, CartState, ItemId};
use ledger::CartStep;

use crate::{Reconciler, ReconcilerError, expire::with_timeout, returns};

/// Carts of one search.
const SEARCH_MAX: usize = 500;

fn items(cart: &Cart) -> Vec<ItemId> {
    cart.lines.iter().map(|line| line.item.clone()).collect()
}

/// Takes the step in a transaction of its own, unless something else has changed the cart, and returns
/// the units that it frees.
async fn take(reconciler: &Reconciler, step: &CartStep) -> Result<(), ReconcilerError> {
    let stepped = with_timeout(reconciler, reconciler.ledger.step_cart(step)).await?;
    let Some(stepped) = stepped else {
        return Ok(());
    };
    if step.cart.state != step.to {
        count(step.to, 1);
    }
    returns::return_orders(reconciler, &stepped.freed).await;
    Ok(())
}

fn count(to: CartState, carts: usize) {
    metrics::counter!("stockade_carts_total", "to" => to.as_str()).increment(carts as u64);
}
