//! Somebody who looks at the item now and then, and buys nothing.

use std::time::Duration;

use super::{BROWSE, Kind};
use crate::visit::{Step, Visit};

/// Between two looks, in milliseconds.
const PAUSE_MS_MOST: u64 = 50;

/// Somebody who only looks.
pub const BROWSER: Kind = Kind {
    name: "browser",
    buy: |visit| Box::pin(browse(visit)),
};

async fn browse(visit: &mut Visit<'_>) -> Step<()> {
    let whim = visit.dice() >> 32;
    for _ in 0..=whim % 3 {
        if visit.browse(BROWSE).await?.is_none() {
            return Ok(None);
        }
        visit
            .wait(Duration::from_millis(whim % (PAUSE_MS_MOST + 1)))
            .await;
    }
    Ok(Some(()))
}
