//! A buyer who sends more orders than the limit allows, all at once, on as many connections.

use super::Kind;
use crate::visit::{Step, Visit};

/// More orders at once than that are nobody's.
const ORDERS_MOST: u32 = 10;

/// A buyer who races past the limit.
pub const ALL_AT_ONCE: Kind = Kind {
    name: "all at once",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    let orders = visit.limit().saturating_add(2).min(ORDERS_MOST);
    visit.order_at_once("order at once", orders).await
}
