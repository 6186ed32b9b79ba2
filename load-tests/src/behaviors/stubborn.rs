//! A client that sends the same request on several connections concurrently, abandons them soon,
//! and starts again.

use std::time::Duration;

use super::{Behavior, STORM};
use crate::session::{Session, Step, Storm};

/// Longest timeout; the shortest is 1 ms.
const TIMEOUT_MS_MAX: u64 = 30;

/// Retries on many connections.
pub const STUBBORN: Behavior = Behavior {
    name: "stubborn",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let timeout = Duration::from_millis(1 + session.random() % TIMEOUT_MS_MAX);
    session
        .storm(
            STORM,
            1,
            Storm {
                rounds: 2,
                copies: 3,
                timeout,
            },
        )
        .await
}
