//! Most buyers: one unit, once, whatever the answer.

use super::{Kind, PLACE};
use crate::visit::{Step, Visit};

/// A buyer of one unit.
pub const ONE_UNIT: Kind = Kind {
    name: "one unit",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    Ok(visit.order(PLACE, 1).await?.map(|_| ()))
}
