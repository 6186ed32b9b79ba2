//! A buyer who never pays a cart, so the holds of all its lines expire.

use super::{super::Behavior, PLACE_CART};
use crate::session::{Session, Step};

/// Places a cart, and does nothing more.
pub const CART_EXPIRES: Behavior = Behavior {
    name: "leaves a cart",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let lines = session.wanted_lines();
    session.cart(PLACE_CART, lines).await?;
    Ok(())
}
