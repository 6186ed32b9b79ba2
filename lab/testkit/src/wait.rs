//! Waiting for a condition with a deadline.

use std::time::{Duration, Instant};

/// Longer than any condition takes on a busy machine, so that only a real fault reaches it.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// The first polls follow closely, so that a short wait stays short. Later ones leave the processor to
/// what the test waits for.
const POLL_INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(5)..=Duration::from_millis(60);

/// Polls until the condition is true. Panics with `what` after [`TIMEOUT`].
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    eventually_some(what, async || condition().await.then_some(())).await;
}

/// Polls until `find` returns a value. Panics with `what` after [`TIMEOUT`].
pub async fn eventually_some<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    let mut interval = *POLL_INTERVALS.start();
    loop {
        if let Some(found) = find().await {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "{what} did not happen within {TIMEOUT:?}"
        );
        tokio::time::sleep(interval).await;
        interval = (interval * 5 / 4).min(*POLL_INTERVALS.end());
    }
}
