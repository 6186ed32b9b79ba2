//! A buyer who pays a cart. The provider reports the payment twice, and some buyers pay a second
//! time by mistake.

use super::{super::Behavior, CANCEL_CART, PAY_CART, PLACE_CART, POLL_CART, REPEAT_CART};
use crate::session::{Session, Step};

/// Pays a cart in time.
pub const CART_PAYS: Behavior = Behavior {
    name: "pays a cart",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let (placed, mut own) = session.hold_cart(PLACE_CART).await?;
    for _ in 0..2 {
        session.pay_cart(PAY_CART, &mut own, "first").await?;
    }
    match session.random() % 4 {
        0 => {
            session
                .pay_cart("pay cart again with another payment", &mut own, "second")
                .await
        }
        1 => session.cancel_cart(CANCEL_CART, &mut own).await,
        2 => session.show_cart(POLL_CART, &mut own).await,
        _ => session.repeat_cart(REPEAT_CART, &placed, Some(&own)).await,
    }
}
