//! A buyer who pays and gets a refund, so that units return from `confirmed`.

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
    let (_, mut own) = session.hold_unit(PLACE).await?;
    session.pay(PAY, &mut own, "first").await?;
    session.wait_at_most(PAUSE_MS_MAX, session.random()).await;
    session.refund("refund order", &mut own).await
}
