//! A buyer who has the holds of a cart extended, and needs the time.

use std::time::Duration;

use super::{super::Behavior, CANCEL_CART, PAY_CART, PLACE_CART, POLL_CART};
use crate::session::{Session, Step};

/// Longest time between the first end of the hold and the payment.
const PAUSE_MS_MAX: u64 = 500;

/// Extends a cart, and pays it after its holds would have expired.
pub const CART_EXTENDS: Behavior = Behavior {
    name: "extends a cart",
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
    let first_hold = own.remaining();
    if session
        .extend_cart("extend cart", &mut own)
        .await?
        .is_none()
    {
        return Ok(None);
    }
    let pause = Duration::from_millis(session.random() % (PAUSE_MS_MAX + 1));
    session.wait(first_hold + pause).await;
    if session.show_cart(POLL_CART, &mut own).await?.is_none() {
        return Ok(None);
    }
    match session.random() % 2 {
        0 => session.pay_cart(PAY_CART, &mut own, "first").await,
        _ => session.cancel_cart(CANCEL_CART, &mut own).await,
    }
}
