//! A buyer who places a second cart of the same items, above the limit. It counts for nothing:
//! after the first was cancelled, a third one fits.

use super::{super::Behavior, CANCEL_CART, PLACE_CART};
use crate::session::{Session, Step};

/// Places carts above the limit.
pub const CART_OVER_THE_LIMIT: Behavior = Behavior {
    name: "carts above the limit",
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
    let most = session.lines_at_the_limit(&own);
    let name = "place cart above the limit";
    if session.cart(name, most.clone()).await?.is_none() {
        return Ok(None);
    }
    if session.cancel_cart(CANCEL_CART, &mut own).await?.is_none() {
        return Ok(None);
    }
    Ok(session.cart(PLACE_CART, most).await?.map(|_| ()))
}
