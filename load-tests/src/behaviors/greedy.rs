//! A buyer who orders more units at a time than the limit allows.

use super::{Behavior, PLACE};
use crate::session::{Session, Step};

/// Orders one unit more than the limit, then one unit.
pub const GREEDY: Behavior = Behavior {
    name: "greedy",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let too_many = session.limit().saturating_add(1);
    session.order("order too many", too_many).await?;
    // The refused order must not count against the limit.
    session.order(PLACE, 1).await?;
    Ok(())
}
