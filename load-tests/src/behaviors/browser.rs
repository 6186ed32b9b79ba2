//! A visitor who shows the item several times, and buys nothing.

use std::time::Duration;

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
        if session.browse(BROWSE).await?.is_none() {
            return Ok(None);
        }
        session
            .wait(Duration::from_millis(random % (PAUSE_MS_MAX + 1)))
            .await;
    }
    Ok(Some(()))
}
