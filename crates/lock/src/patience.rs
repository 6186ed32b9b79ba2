//! Asking again and again, for as long as the patience lasts.

use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use crate::{Guard, LockError, Patience};

/// How often in a row servers may have taken too long.
const TOO_LATE_MAX: u32 = 5;
/// A crowd is never kept waiting for longer.
const SCATTER_MAX: Duration = Duration::from_millis(100);

/// Somebody who wants a lock of a server that does not keep a queue.
pub(crate) trait Ask: Send {
    /// One attempt. It ends by itself, and may be dropped before.
    fn ask(&mut self) -> impl Future<Output = Result<Guard, LockError>> + Send;

    /// Waits until another attempt may succeed.
    fn pause(&mut self, refusal: &LockError) -> impl Future<Output = ()> + Send;
}

/// Asks until the lock is ours, the patience is over, or waiting does not help.
pub(crate) async fn ask(patience: Patience, asker: &mut impl Ask) -> Result<Guard, LockError> {
    match patience {
        Patience::None => asker.ask().await,
        Patience::UntilFree => ask_until_free(asker).await,
        Patience::For(patience) => match Instant::now().checked_add(patience) {
            Some(until) => ask_until(until, asker).await,
            None => ask_until_free(asker).await,
        },
    }
}

async fn ask_until_free(asker: &mut impl Ask) -> Result<Guard, LockError> {
    let mut too_late = 0;
    loop {
        let error = match asker.ask().await {
            Err(error @ LockError::Held { .. }) => {
                too_late = 0;
                error
            }
            // Once is bad luck; always, it is servers that are too slow for the lease.
            Err(error @ LockError::TooLate { .. }) if too_late < TOO_LATE_MAX => {
                too_late += 1;
                error
            }
            result => return result,
        };
        asker.pause(&error).await;
    }
}

/// A first attempt is made in any case.
async fn ask_until(until: Instant, asker: &mut impl Ask) -> Result<Guard, LockError> {
    let mut result = asker.ask().await;
    loop {
        let error = match result {
            Err(error) if error.is_retryable() && Instant::now() < until => error,
            result => return result,
        };
        let again = async {
            asker.pause(&error).await;
            asker.ask().await
        };
        result = timeout_at(until.into(), again).await.unwrap_or(Err(error));
    }
}

/// A pause that does not keep contenders in step.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.5..1.0))
}

/// A pause that keeps a crowd that was woken at once from asking at once: each member picks its time, and on average one asks in the time that
/// an attempt takes.
pub(crate) fn scattered(crowd: u32, attempt: Duration) -> Duration {
    (attempt * crowd.saturating_sub(1))
        .min(SCATTER_MAX)
        .mul_f64(rand::random())
}
