//! A client that makes the same request on several connections at once, gives up soon, and does it again.

use std::time::Duration;

use super::{Kind, STORM};
use crate::visit::{Step, Storm, Visit};

/// Timeouts from 1 ms on.
const PATIENCE_MS_MOST: u64 = 30;

/// A client with many connections.
pub const STUBBORN: Kind = Kind {
    name: "stubborn",
    buy: |visit| Box::pin(buy(visit)),
};

async fn buy(visit: &mut Visit<'_>) -> Step<()> {
    let patience = Duration::from_millis(1 + (visit.dice() >> 32) % PATIENCE_MS_MOST);
    visit
        .storm(
            STORM,
            1,
            Storm {
                rounds: 2,
                copies: 3,
                patience,
            },
        )
        .await
}
