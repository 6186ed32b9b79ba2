//! A buyer who cancels the order, and whose client may repeat the cancellation.

use std::time::Duration;

use super::{Behavior, CANCEL, PAY, PLACE, REPEAT};
use crate::session::{Session, Step};

/// Longest time before the cancellation.
const PAUSE_MS_MAX: u64 = 50;

/// Orders and cancels.
pub const CANCELS: Behavior = Behavior {
    name: "cancels",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let Some(placed) = session.order(PLACE, 1).await? else {
        return Ok(None);
    };
    let Some(mut own) = session.own(&placed) else {
        return Ok(Some(()));
    };
    let random = session.random();
    session
        .wait(Duration::from_millis(random % (PAUSE_MS_MAX + 1)))
        .await;
    if session.cancel(CANCEL, &mut own).await?.is_none() {
        return Ok(None);
    }
    match random / 64 % 4 {
        0 => session.cancel(CANCEL, &mut own).await,
        1 => Ok(session.repeat_of(REPEAT, &placed, &own).await?.map(|_| ())),
        2 => session.pay(PAY, &mut own, "in-vain").await,
        _ => Ok(Some(())),
    }
}
