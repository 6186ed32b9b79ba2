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
    let lines = session.wanted_lines();
    let Some(placed) = session.cart(PLACE_CART, lines).await? else {
        return Ok(None);
    };
    let Some(mut own) = session.own_cart(&placed) else {
        return Ok(Some(()));
    };
    for _ in 0..2 {
        if session
            .pay_cart(PAY_CART, &mut own, "first")
            .await?
            .is_none()
        {
            return Ok(None);
        }
    }
    match session.random() % 4 {
        0 => {
            session
                .pay_cart("pay cart again with another payment", &mut own, "second")
                .await
        }
        1 => session.cancel_cart(CANCEL_CART, &mut own).await,
        2 => session.show_cart(POLL_CART, &mut own).await,
        _ => {
            let again = session.repeat_cart(REPEAT_CART, &placed, Some(&own));
            Ok(again.await?.map(|_| ()))
        }
    }
}
