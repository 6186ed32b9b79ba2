//! Repeats an acquisition for as long as its caller waits.

use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use crate::{error::LockError, guard::Guard, request::Wait};

/// Attempts in a row that may come too late for the lease.
const TOO_LATE_MAX: u32 = 5;

/// An acquisition that can be repeated.
pub(crate) trait Acquire: Send {
    /// Makes one attempt. It has its own timeouts, and may be dropped at any time.
    fn try_once(&mut self) -> impl Future<Output = Result<Guard, LockError>> + Send;

    /// Waits until another attempt may succeed.
    fn wait_for_retry(&mut self, refusal: &LockError) -> impl Future<Output = ()> + Send;
}

/// Repeats the attempt until it succeeds, the wait is over, or waiting does not help.
pub(crate) async fn acquire(
    wait: Wait,
    acquisition: &mut impl Acquire,
) -> Result<Guard, LockError> {
    match wait {
        Wait::Never => acquisition.try_once().await,
        Wait::UntilFree => retry_while_held(acquisition).await,
        Wait::AtMost(timeout) => match Instant::now().checked_add(timeout) {
            Some(deadline) => retry_until(deadline, acquisition).await,
            None => retry_while_held(acquisition).await,
        },
    }
}

async fn retry_while_held(acquisition: &mut impl Acquire) -> Result<Guard, LockError> {
    let mut too_late = 0;
    loop {
        let error = match acquisition.try_once().await {
            Err(error @ LockError::Held { .. }) => {
                too_late = 0;
                error
            }
            // One late answer is chance. Several in a row mean that the servers are too slow for
            // the lease.
            Err(error @ LockError::TooLate { .. }) if too_late < TOO_LATE_MAX => {
                too_late += 1;
                error
            }
            result => return result,
        };
        acquisition.wait_for_retry(&error).await;
    }
}

/// Makes at least one attempt.
async fn retry_until(
    deadline: Instant,
    acquisition: &mut impl Acquire,
) -> Result<Guard, LockError> {
    let mut result = acquisition.try_once().await;
    loop {
        let error = match result {
            Err(error) if error.is_retryable() && Instant::now() < deadline => error,
            result => return result,
        };
        let retry = async {
            acquisition.wait_for_retry(&error).await;
            acquisition.try_once().await
        };
        result = timeout_at(deadline.into(), retry)
            .await
            .unwrap_or(Err(error));
    }
}

/// A pause with jitter, so that contenders do not stay in step.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.5..1.0))
}

/// Spreads the attempts of a crowd that was woken at the same moment. On average, one member makes
/// its attempt in the time that an attempt takes.
#[cfg(feature = "redlock")]
pub(crate) fn scattered(crowd: u32, attempt: Duration) -> Duration {
    /// Upper limit of the pause, for any size of the crowd.
    const SCATTER_MAX: Duration = Duration::from_millis(100);
    (attempt * crowd.saturating_sub(1))
        .min(SCATTER_MAX)
        .mul_f64(rand::random())
}
