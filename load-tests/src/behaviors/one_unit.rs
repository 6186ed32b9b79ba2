//! Most buyers: one order of one unit.

use super::{Behavior, PLACE};
use crate::session::{Session, Step};

/// Orders one unit once.
pub const ONE_UNIT: Behavior = Behavior {
    name: "one unit",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    session.order(PLACE, 1).await?;
    Ok(())
}
