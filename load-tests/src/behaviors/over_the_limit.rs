//! A buyer who places orders with new keys until one is refused.

use super::Behavior;
use crate::{
    outcome::Outcome,
    session::{Session, Step},
};

/// Bounds the number of orders if the limit is high.
const ORDERS_MAX: u32 = 10;

/// Tries to exceed the limit one order after the other.
pub const OVER_THE_LIMIT: Behavior = Behavior {
    name: "over the limit",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    // One order more than the limit, which must be refused.
    for _ in 0..=session.limit().min(ORDERS_MAX) {
        let placed = session.order("order over the limit", 1).await?;
        if !matches!(placed.outcome, Outcome::Held { .. }) {
            break;
        }
    }
    Ok(())
}
