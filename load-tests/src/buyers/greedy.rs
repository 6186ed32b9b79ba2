//! A buyer who wants more in one order than one may have.

use super::{Kind, PLACE};
use crate::visit::{Step, Visit};

/// A buyer of one unit too many.
pub const GREEDY: Kind = Kind {
    name: "greedy",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    let too_many = visit.limit().saturating_add(1);
    if visit.order("order too many", too_many).await?.is_none() {
        return Ok(None);
    }
    // The refusal must not have taken anything of what the buyer may have.
    Ok(visit.order(PLACE, 1).await?.map(|_| ()))
}
