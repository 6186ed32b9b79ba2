//! A buyer who pays and gets a refund, so that units return from `confirmed`.

use std::time::Duration;

use super::{Behavior, PAY, PLACE};
use crate::session::{Session, Step};

/// Longest time before the refund.
const PAUSE_MS_MAX: u64 = 50;

/// Orders, pays and gets a refund.
pub const REFUNDED: Behavior = Behavior {
    name: "refunded",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let Some(placed) = session.order(PLACE, 1).await? else {
        return Ok(None);
    };
    let Some(mut own) = session.own(&placed) else {
        return Ok(Some(()));
    };
    if session.pay(PAY, &mut own, "first").await?.is_none() {
        return Ok(None);
    }
    session
        .wait(Duration::from_millis(session.random() % (PAUSE_MS_MAX + 1)))
        .await;
    session.refund("refund order", &mut own).await
}
