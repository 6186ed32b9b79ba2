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
    let (_, mut own) = session.hold_cart(PLACE_CART).await?;
    let most = session.lines_at_the_limit(&own);
    let name = "place cart above the limit";
    session.cart(name, most.clone()).await?;
    session.cancel_cart(CANCEL_CART, &mut own).await?;
    session.cart(PLACE_CART, most).await?;
    Ok(())
}
