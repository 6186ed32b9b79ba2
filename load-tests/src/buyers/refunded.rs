//! A buyer who pays, does not like it, and gets the money back: the units return from `confirmed`.

use std::time::Duration;

use super::{Kind, PAY, PLACE};
use crate::visit::{Step, Visit};

/// The longest time until the buyer complains, in milliseconds.
const DELIGHT_MS_MOST: u64 = 50;

/// A buyer who sends it back.
pub const REFUNDED: Kind = Kind {
    name: "refunded",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    let Some(asking) = visit.order(PLACE, 1).await? else {
        return Ok(None);
    };
    let Some(mut own) = visit.own(&asking) else {
        return Ok(Some(()));
    };
    if visit.pay(PAY, &mut own, "first").await?.is_none() {
        return Ok(None);
    }
    visit
        .wait(Duration::from_millis(
            (visit.dice() >> 32) % (DELIGHT_MS_MOST + 1),
        ))
        .await;
    visit.refund("refund order", &mut own).await
}
