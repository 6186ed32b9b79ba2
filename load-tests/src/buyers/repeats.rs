//! A buyer whose request is made twice with the same key: by a double click at once, or after a moment because the answer was lost.

use std::time::Duration;

use super::{Kind, PLACE, REPEAT};
use crate::visit::{Step, Visit};

/// The longest moment, in milliseconds.
const MOMENT_MS_MOST: u64 = 50;

/// A buyer who repeats the request.
pub const REPEATS: Kind = Kind {
    name: "repeats",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    // The lower half of the dice has decided the kind.
    let whim = visit.dice() >> 32;
    if whim.is_multiple_of(2) {
        visit.order_twice(PLACE, REPEAT, 1).await
    } else {
        after_a_moment(visit, whim).await
    }
}

async fn after_a_moment(visit: &mut Visit<'_>, whim: u64) -> Step<()> {
    let Some(first) = visit.order(PLACE, 1).await? else {
        return Ok(None);
    };
    visit
        .wait(Duration::from_millis(whim / 2 % (MOMENT_MS_MOST + 1)))
        .await;
    Ok(visit.repeat(REPEAT, &first).await?.map(|_| ()))
}
