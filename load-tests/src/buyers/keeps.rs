//! A buyer who pays and keeps what was bought.

use super::{Kind, PAY, PLACE};
use crate::visit::{Step, Visit};

/// A buyer who keeps the unit.
pub const KEEPS: Kind = Kind {
    name: "keeps",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    let Some(asking) = visit.order(PLACE, 1).await? else {
        return Ok(None);
    };
    let Some(mut own) = visit.own(&asking) else {
        return Ok(Some(()));
    };
    visit.pay(PAY, &mut own, "first").await
}
