//! A buyer whose request is sent twice with the same key: concurrently, as by a double click, or
//! later, as after a lost response.

use super::{Behavior, PLACE, REPEAT};
use crate::session::{Session, Step};

/// Longest pause before the repeat.
const PAUSE_MS_MAX: u64 = 50;

/// Sends the request twice.
pub const REPEATS: Behavior = Behavior {
    name: "repeats",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let random = session.random();
    if random.is_multiple_of(2) {
        session.order_twice(PLACE, REPEAT, 1).await
    } else {
        repeat_later(session, random).await
    }
}

async fn repeat_later(session: &mut Session<'_>, random: u64) -> Step<()> {
    let first = session.order(PLACE, 1).await?;
    session.wait_at_most(PAUSE_MS_MAX, random / 2).await;
    session.repeat(REPEAT, &first).await
}
