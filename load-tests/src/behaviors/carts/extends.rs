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
    let (_, mut own) = session.hold_cart(PLACE_CART).await?;
    let first_hold = own.remaining();
    session.extend_cart("extend cart", &mut own).await?;
    let pause = Duration::from_millis(session.random() % (PAUSE_MS_MAX + 1));
    session.wait(first_hold + pause).await;
    session.show_cart(POLL_CART, &mut own).await?;
    match session.random() % 2 {
        0 => session.pay_cart(PAY_CART, &mut own, "first").await,
        _ => session.cancel_cart(CANCEL_CART, &mut own).await,
    }
}
