//! A buyer whose cart is sent twice with the same key: concurrently, as by a double click, or
//! later, as after a lost response.

use super::{super::Behavior, PLACE_CART, REPEAT_CART};
use crate::session::{Session, Step};

/// Longest pause before the repeat.
const PAUSE_MS_MAX: u64 = 50;

/// Sends the cart twice.
pub const CART_REPEATS: Behavior = Behavior {
    name: "repeats a cart",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let (random, lines) = (session.random(), session.wanted_lines());
    if random.is_multiple_of(2) {
        return session.cart_twice(PLACE_CART, REPEAT_CART, lines).await;
    }
    let first = session.cart(PLACE_CART, lines).await?;
    session.wait_at_most(PAUSE_MS_MAX, random / 2).await;
    let own = session.own_cart(&first);
    session.repeat_cart(REPEAT_CART, &first, own.as_ref()).await
}
