//! A buyer who never pays, so the hold expires.

use super::{Behavior, PLACE};
use crate::session::{Session, Step};

/// Orders, and does nothing more.
pub const EXPIRES: Behavior = Behavior {
    name: "expires",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    session.order(PLACE, 1).await?;
    Ok(())
}
