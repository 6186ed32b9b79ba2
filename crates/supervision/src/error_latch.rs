//! Logs the first failure of an operation and its recovery once each, not every failed retry.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
};

/// Whether an operation fails now.
pub struct ErrorLatch {
    what: &'static str,
    counter: &'static str,
    failing: AtomicBool,
}

impl ErrorLatch {
    /// A latch of the operation `what`. Each failure increments the metric `counter`.
    pub const fn new(what: &'static str, counter: &'static str) -> Self {
        Self {
            what,
            counter,
            failing: AtomicBool::new(false),
        }
    }

    /// Counts a failure, and logs it as a warning if the operation worked before.
    pub fn failed(&self, error: &(dyn Error + 'static)) {
        metrics::counter!(self.counter).increment(1);
        if self.failing.swap(true, Ordering::Relaxed) {
            tracing::debug!(what = self.what, error, "still failing, retrying");
        } else {
            tracing::warn!(error, "{} failed, retrying", self.what);
        }
    }

    /// Logs the recovery if the operation failed before.
    pub fn recovered(&self) {
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!("{} recovered", self.what);
        }
    }
}
