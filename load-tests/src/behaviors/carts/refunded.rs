//! A buyer who pays a cart and gets a refund, so that the units of all lines return from
//! `confirmed`.

use super::{super::Behavior, PAY_CART, PLACE_CART};
use crate::session::{Session, Step};

/// Pays a cart and gets a refund.
pub const CART_REFUNDED: Behavior = Behavior {
    name: "gets a cart refunded",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let (_, mut own) = session.hold_cart(PLACE_CART).await?;
    session.pay_cart(PAY_CART, &mut own, "first").await?;
    session.refund_cart("refund cart", &mut own).await
}
