//! A buyer who changes their mind, and whose client says so twice.

use std::time::Duration;

use super::{CANCEL, Kind, PAY, PLACE, REPEAT};
use crate::visit::{Step, Visit};

/// The longest time to think, in milliseconds.
const THOUGHT_MS_MOST: u64 = 50;

/// A buyer who cancels.
pub const CANCELS: Kind = Kind {
    name: "cancels",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    let Some(asking) = visit.order(PLACE, 1).await? else {
        return Ok(None);
    };
    let Some(mut own) = visit.own(&asking) else {
        return Ok(Some(()));
    };
    let whim = visit.dice() >> 32;
    visit
        .wait(Duration::from_millis(whim % (THOUGHT_MS_MOST + 1)))
        .await;
    if visit.cancel(CANCEL, &mut own).await?.is_none() {
        return Ok(None);
    }
    match whim / 64 % 4 {
        0 => visit.cancel(CANCEL, &mut own).await,
        1 => Ok(visit.repeat_of(REPEAT, &asking, &own).await?.map(|_| ())),
        2 => visit.pay(PAY, &mut own, "in-vain").await,
        _ => Ok(Some(())),
    }
}
