//! A buyer who cancels a cart, and whose client may repeat the cancellation.

use super::{super::Behavior, CANCEL_CART, PAY_CART, PLACE_CART, REPEAT_CART};
use crate::session::{Session, Step};

/// Longest time before the cancellation.
const PAUSE_MS_MAX: u64 = 50;

/// Places a cart and cancels it.
pub const CART_CANCELS: Behavior = Behavior {
    name: "cancels a cart",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let (placed, mut own) = session.hold_cart(PLACE_CART).await?;
    let random = session.random();
    session.wait_at_most(PAUSE_MS_MAX, random).await;
    session.cancel_cart(CANCEL_CART, &mut own).await?;
    match random / 64 % 4 {
        0 => session.cancel_cart(CANCEL_CART, &mut own).await,
        1 => session.repeat_cart(REPEAT_CART, &placed, Some(&own)).await,
        2 => session.pay_cart(PAY_CART, &mut own, "in-vain").await,
        _ => Ok(()),
    }
}
