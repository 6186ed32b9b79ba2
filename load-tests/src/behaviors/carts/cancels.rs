//! A buyer who cancels a cart, and whose client may repeat the cancellation.

use std::time::Duration;

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
    let lines = session.wanted_lines();
    let Some(placed) = session.cart(PLACE_CART, lines).await? else {
        return Ok(None);
    };
    let Some(mut own) = session.own_cart(&placed) else {
        return Ok(Some(()));
    };
    let random = session.random();
    session
        .wait(Duration::from_millis(random % (PAUSE_MS_MAX + 1)))
        .await;
    if session.cancel_cart(CANCEL_CART, &mut own).await?.is_none() {
        return Ok(None);
    }
    match random / 64 % 4 {
        0 => session.cancel_cart(CANCEL_CART, &mut own).await,
        1 => {
            let again = session.repeat_cart(REPEAT_CART, &placed, Some(&own));
            Ok(again.await?.map(|_| ()))
        }
        2 => session.pay_cart(PAY_CART, &mut own, "in-vain").await,
        _ => Ok(Some(())),
    }
}
