//! A buyer who pays.

use super::{Behavior, PAY, PLACE};
use crate::session::{Session, Step};

/// Orders and pays.
pub const KEEPS: Behavior = Behavior {
    name: "keeps",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let Some(placed) = session.order(PLACE, 1).await? else {
        return Ok(None);
    };
    let Some(mut own) = session.own(&placed) else {
        return Ok(Some(()));
    };
    session.pay(PAY, &mut own, "first").await
}
