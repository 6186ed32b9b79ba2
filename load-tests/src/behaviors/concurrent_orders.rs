//! A buyer who sends more orders than the limit allows, concurrently on as many connections.

use super::Behavior;
use crate::session::{Session, Step};

/// Bounds the number of orders if the limit is high.
const ORDERS_MAX: u32 = 10;

/// Tries to exceed the limit by a race.
pub const CONCURRENT_ORDERS: Behavior = Behavior {
    name: "concurrent orders",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let orders = session.limit().saturating_add(2).min(ORDERS_MAX);
    session
        .order_concurrently("order concurrently", orders)
        .await
}
