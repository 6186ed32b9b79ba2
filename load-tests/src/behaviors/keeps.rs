//! A buyer who pays.

use super::{Behavior, PAY, PLACE};
use crate::session::{Session, Step};

/// Orders and pays.
pub const KEEPS: Behavior = Behavior {
    name: "keeps",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let (_, mut own) = session.hold_unit(PLACE).await?;
    session.pay(PAY, &mut own, "first").await
}
