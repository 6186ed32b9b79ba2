//! A buyer who orders again and again, with a new key each time, until the limit or the end of the stock stops it.

use super::Kind;
use crate::{
    answer::Answer,
    visit::{Step, Visit},
};

/// More orders than that are nobody's: with a high limit the buyer gives up.
const ORDERS_MOST: u32 = 10;

/// A buyer who wants more than one may have.
pub const OVER_THE_LIMIT: Kind = Kind {
    name: "over the limit",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    // One more than the limit: that one must be refused, and is an error if it is not.
    for _ in 0..=visit.limit().min(ORDERS_MOST) {
        let Some(asking) = visit.order("order over the limit", 1).await? else {
            return Ok(None);
        };
        if !matches!(asking.answer, Answer::Held { .. }) {
            break;
        }
    }
    Ok(Some(()))
}
