//! A buyer who orders two units in one order.

use super::Behavior;
use crate::session::{Session, Step};

/// Orders two units once.
pub const TWO_UNITS: Behavior = Behavior {
    name: "two units",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    session.order("place order for two", 2).await?;
    Ok(())
}
