//! A buyer who is told that nothing is left and comes back, with a new order each time, until something is.

use std::time::Duration;

use super::{Kind, PLACE};
use crate::{
    answer::Answer,
    visit::{Step, Visit},
};

/// How often, and how long after each other.
const KNOCKS_MOST: u32 = 5;
const PAUSE: Duration = Duration::from_millis(120);

/// A buyer who knocks until somebody gives something back.
pub const KNOCKS: Kind = Kind {
    name: "knocks",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    for _ in 0..KNOCKS_MOST {
        let Some(asking) = visit.order(PLACE, 1).await? else {
            return Ok(None);
        };
        if asking.answer != Answer::SoldOut {
            break;
        }
        visit.wait(PAUSE).await;
    }
    Ok(Some(()))
}
