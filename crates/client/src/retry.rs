//! How requests are repeated whose outcome is unknown.

use std::time::Duration;

use rand::RngExt;

/// Repeats a request until its outcome is known or `deadline` has passed.
///
/// The pause doubles from `pause` to `pause_max`, and varies at random by up to half, so that the
/// clients of a service that recovers do not all return at the same moment. A pause is at least as
/// long as `Retry-After`, even if that is longer than `pause_max`. If it does not end before the
/// deadline, the attempts end at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Time from the first attempt after which no further attempt begins. The last one may take its
    /// [time limit](crate::ClientBuilder::attempt_timeout) more.
    pub deadline: Duration,
    /// Pause after the first attempt.
    pub pause: Duration,
    /// The longest pause that the client chooses itself.
    pub pause_max: Duration,
    /// Whether a pause is as long as `Retry-After` asks for.
    pub obey_retry_after: bool,
}

impl Default for RetryPolicy {
    /// For 30 seconds, with pauses from 50 ms to 2 s.
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            pause: Duration::from_millis(50),
            pause_max: Duration::from_secs(2),
            obey_retry_after: true,
        }
    }
}

impl RetryPolicy {
    /// Sends each request once.
    pub fn never() -> Self {
        Self::every(Duration::ZERO, Duration::ZERO)
    }

    /// Repeats for `deadline`, with about the same `pause` after each attempt, whatever
    /// `Retry-After` is.
    pub fn every(pause: Duration, deadline: Duration) -> Self {
        Self {
            deadline,
            pause,
            pause_max: pause,
            obey_retry_after: false,
        }
    }

    pub(crate) fn pause_after(&self, attempts: u32, retry_after: Option<u64>) -> Duration {
        let doubled = self
            .pause
            .saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1)));
        let varied = doubled
            .min(self.pause_max)
            .mul_f64(rand::rng().random_range(0.5..=1.0));
        let asked = retry_after.filter(|_| self.obey_retry_after);
        varied.max(Duration::from_secs(asked.unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::RetryPolicy;

    #[test]
    fn pauses_double_up_to_the_longest_and_respect_retry_after() {
        let policy = RetryPolicy {
            deadline: Duration::from_secs(30),
            pause: Duration::from_millis(100),
            pause_max: Duration::from_secs(1),
            obey_retry_after: true,
        };
        for (attempts, least, most) in [(1, 50, 100), (2, 100, 200), (4, 400, 800), (40, 500, 1000)]
        {
            let pause = policy.pause_after(attempts, None).as_millis();
            assert!((least..=most).contains(&pause), "{attempts}: {pause} ms");
        }
        assert_eq!(policy.pause_after(1, Some(1)), Duration::from_secs(1));
        assert_eq!(policy.pause_after(1, Some(60)), Duration::from_secs(60));
        let every = RetryPolicy::every(Duration::from_millis(10), Duration::from_secs(1));
        assert!(every.pause_after(1, Some(60)) <= Duration::from_millis(10));
    }
}
