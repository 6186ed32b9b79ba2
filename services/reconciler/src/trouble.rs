//! Says once that something fails, and once that it does no more, however often it is tried in between.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
};

/// Whether something fails right now.
pub(crate) struct Trouble {
    what: &'static str,
    failing: AtomicBool,
}

impl Trouble {
    pub(crate) const fn new(what: &'static str) -> Self {
        Self {
            what,
            failing: AtomicBool::new(false),
        }
    }

    pub(crate) fn failed(&self, error: &(dyn Error + 'static)) {
        metrics::counter!("stockade_reconciler_errors_total").increment(1);
        if self.failing.swap(true, Ordering::Relaxed) {
            tracing::debug!(what = self.what, error, "fails again");
        } else {
            tracing::warn!(
                what = self.what,
                error,
                "fails; it is tried again until it does not"
            );
        }
    }

    pub(crate) fn is_well(&self) {
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(what = self.what, "does not fail any more");
        }
    }
}
