//! A buyer who cancels the order, and whose client may repeat the cancellation.

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
    let (placed, mut own) = session.hold_unit(PLACE).await?;
    let random = session.random();
    session.wait_at_most(PAUSE_MS_MAX, random).await;
    session.cancel(CANCEL, &mut own).await?;
    match random / 64 % 4 {
        0 => session.cancel(CANCEL, &mut own).await,
        1 => session.repeat_of(REPEAT, &placed, &own).await,
        2 => session.pay(PAY, &mut own, "in-vain").await,
        _ => Ok(()),
    }
}
