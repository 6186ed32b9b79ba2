//! A buyer who pays a cart after its holds have expired. A cart takes no units again, so the money
//! must be returned.

use super::{super::Behavior, PLACE_CART, POLL_CART};
use crate::session::{Session, Step};

/// Pays a cart too late.
pub const CART_PAYS_LATE: Behavior = Behavior {
    name: "pays a cart late",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let (_, mut own) = session.hold_cart(PLACE_CART).await?;
    session.wait_for_expiry_of(&own).await;
    for _ in 0..2 {
        session.pay_cart("pay cart late", &mut own, "late").await?;
    }
    session.show_cart(POLL_CART, &mut own).await
}
