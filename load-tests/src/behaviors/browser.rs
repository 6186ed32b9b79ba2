//! A visitor who shows the item several times, and buys nothing.

use super::{BROWSE, Behavior};
use crate::session::{Session, Step};

/// Longest pause between two requests.
const PAUSE_MS_MAX: u64 = 50;

/// Only shows the item.
pub const BROWSER: Behavior = Behavior {
    name: "browser",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let random = session.random();
    for _ in 0..=random % 3 {
        session.browse(BROWSE).await?;
        session.wait_at_most(PAUSE_MS_MAX, random).await;
    }
    Ok(())
}
