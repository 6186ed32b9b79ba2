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
    let lines = session.wanted_lines();
    let Some(placed) = session.cart(PLACE_CART, lines).await? else {
        return Ok(None);
    };
    let Some(mut own) = session.own_cart(&placed) else {
        return Ok(Some(()));
    };
    session.wait_for_expiry_of(&own).await;
    for _ in 0..2 {
        if session
            .pay_cart("pay cart late", &mut own, "late")
            .await?
            .is_none()
        {
            return Ok(None);
        }
    }
    session.show_cart(POLL_CART, &mut own).await
}
