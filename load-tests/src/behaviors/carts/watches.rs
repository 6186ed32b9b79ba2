//! A buyer who watches the lines of a cart while it is paid or cancelled: they change together.

use super::{super::Behavior, CANCEL_CART, PAY_CART, PLACE_CART};
use crate::session::{Session, Step};

/// Shows the lines during a change of the cart.
pub const CART_WATCHES: Behavior = Behavior {
    name: "watches a cart",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let (_, mut own) = session.hold_cart(PLACE_CART).await?;
    match session.random() % 3 {
        0 => session.cancel_and_watch(CANCEL_CART, &mut own).await,
        _ => session.pay_and_watch(PAY_CART, &mut own).await,
    }
}
