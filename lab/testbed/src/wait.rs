//! Waiting for what must happen, however busy the machine is.
//!
//! A time-out that is not the subject of a test comes from [`timeout`], so that only a real fault
//! reaches it.

use std::time::{Duration, Instant};

/// Multiplies [`timeout`]: a number, for machines that are slower than a busy machine with two
/// cores.
const SLOWNESS: &str = "STOCKADE_TEST_SLOWNESS";
const TIMEOUT: Duration = Duration::from_secs(120);
/// The first polls follow closely, so that a short wait stays short. Later ones leave the processor
/// to what the test waits for.
const POLL_INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(5)..=Duration::from_millis(60);

/// Longer than anything takes on a busy machine: two minutes, multiplied by
/// `STOCKADE_TEST_SLOWNESS`.
///
/// # Panics
///
/// If the environment has something else there than a number of at least 1.
pub fn timeout() -> Duration {
    TIMEOUT.mul_f64(slowness(std::env::var(SLOWNESS).ok().as_deref()))
}

fn slowness(value: Option<&str>) -> f64 {
    let Some(value) = value else { return 1.0 };
    match value.parse() {
        Ok(factor) if (1.0..=1000.0).contains(&factor) => factor,
        _ => panic!("{SLOWNESS} must be a number from 1 to 1000, found {value:?}"),
    }
}

/// Ends a loop that would never end.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    until: Instant,
    timeout: Duration,
}

impl Deadline {
    /// Now, and [`timeout`].
    pub fn start() -> Self {
        let timeout = timeout();
        let until = Instant::now() + timeout;
        Self { until, timeout }
    }

    /// Panics with `what` if it has passed.
    pub fn check(&self, what: impl std::fmt::Display) {
        if Instant::now() >= self.until {
            panic!("{what}, after {:?}", self.timeout);
        }
    }
}

/// The output of `future`, which must come within [`timeout`]. Panics with `what` otherwise.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let timeout = timeout();
    match tokio::time::timeout(timeout, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what} did not happen within {timeout:?}"),
    }
}

/// Polls until the condition is true. Panics with `what` after [`timeout`].
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    eventually_some(what, async || condition().await.then_some(())).await;
}

/// Polls until `find` returns a value. Panics with `what` after [`timeout`].
pub async fn eventually_some<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Deadline::start();
    let mut interval = *POLL_INTERVALS.start();
    loop {
        if let Some(found) = find().await {
            return found;
        }
        deadline.check(format_args!("{what} did not happen"));
        tokio::time::sleep(interval).await;
        interval = (interval * 5 / 4).min(*POLL_INTERVALS.end());
    }
}

#[cfg(test)]
mod tests {
    use super::slowness;

    #[test]
    fn a_slow_machine_multiplies_the_timeout() {
        assert_eq!(slowness(None), 1.0);
        assert_eq!(slowness(Some("2.5")), 2.5);
    }

    #[test]
    fn a_slowness_that_is_no_number_is_refused() {
        for wrong in ["", "0", "0.5", "fast", "inf", "NaN"] {
            assert!(
                std::panic::catch_unwind(|| slowness(Some(wrong))).is_err(),
                "{wrong}"
            );
        }
    }
}
