//! What keeps a role's endless tasks alive, cheap, and their logs short: a restart after a panic, a
//! calendar of what is due, a rota of what to look at, and one line when a failure begins and one
//! when it ends.
//!
//! This crate must not know what the tasks do: no stock, no ledger, no HTTP.

mod calendar;
mod error_latch;
mod rota;

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;

pub use calendar::Calendar;
pub use error_latch::ErrorLatch;
pub use rota::{Rota, spread};

/// Pause before a restart, so that a task that panics at once does not spin.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

/// Restarts the task if it panics: no other task does its work.
pub async fn supervise<F: Future<Output = ()>>(what: &'static str, task: impl Fn() -> F) {
    while AssertUnwindSafe(task()).catch_unwind().await.is_err() {
        tracing::error!(what, "task panicked, restarting it");
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::supervise;

    #[tokio::test]
    async fn a_task_that_panics_is_restarted_until_it_returns() {
        let runs = AtomicUsize::new(0);
        supervise("a test", || async {
            let run = runs.fetch_add(1, Ordering::SeqCst);
            assert!(run >= 2, "the first two runs panic");
        })
        .await;
        assert_eq!(runs.load(Ordering::SeqCst), 3);
    }
}
