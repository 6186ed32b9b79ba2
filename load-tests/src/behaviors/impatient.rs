//! A client whose timeout is sometimes shorter than the response time. It abandons all requests but
//! the last.

use std::time::Duration;

use super::{Behavior, STORM};
use crate::session::{Session, Step, Storm};

/// Longest timeout; the shortest is 1 ms. Some requests complete in time, some do not, and some are
/// interrupted.
const TIMEOUT_MS_MAX: u64 = 20;

/// Retries with a short timeout.
pub const IMPATIENT: Behavior = Behavior {
    name: "impatient",
    run: |session| Box::pin(run(session)),
};

async fn run(session: &mut Session<'_>) -> Step<()> {
    let timeout = Duration::from_millis(1 + session.random() % TIMEOUT_MS_MAX);
    session
        .storm(
            STORM,
            1,
            Storm {
                rounds: 3,
                copies: 1,
                timeout,
            },
        )
        .await
}
