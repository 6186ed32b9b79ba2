//! A buyer who places a new order after each `sold_out`, until a unit has returned.

use std::time::Duration;

use super::{Behavior, PLACE};
use crate::{
    outcome::Outcome,
    session::{Session, Step},
};

const ORDERS_MAX: u32 = 5;
const PAUSE: Duration = Duration::from_millis(120);

/// Orders until a unit is available.
pub const RETRIES_WHEN_SOLD_OUT: Behavior = Behavior {
    name: "retries when sold out",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    for _ in 0..ORDERS_MAX {
        let placed = session.order(PLACE, 1).await?;
        if placed.outcome != Outcome::SoldOut {
            break;
        }
        session.wait(PAUSE).await;
    }
    Ok(())
}
