//! Waiting for a condition with a deadline.

use std::time::{Duration, Instant};

/// Longer than any condition takes on a busy machine, so that only a real fault reaches it.
pub const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls until the condition is true. Panics with `what` after [`TIMEOUT`].
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    eventually_some(what, async || condition().await.then_some(())).await;
}

/// Polls until `find` returns a value. Panics with `what` after [`TIMEOUT`].
pub async fn eventually_some<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = find().await {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "{what} did not happen within {TIMEOUT:?}"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
