//! The time by the clock of the Redis servers.
//!
//! Scripts refuse reservations that arrive after their deadline by *their* clock. Deadlines are
//! therefore set by that clock too, estimated from every reply. Masters of a cluster must agree
//! within the request timeout, or orders are refused as late. They must agree within
//! [`crate::StockSettings::forget_margin`], or spillovers are forgotten too early.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Instant,
};

#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    /// Redis milliseconds at `started`.
    origin_ms: AtomicI64,
}

impl Clock {
    pub(crate) fn at(redis_now_ms: i64) -> Self {
        Self {
            started: Instant::now(),
            origin_ms: AtomicI64::new(redis_now_ms),
        }
    }

    /// Adopts the time of a reply that has just arrived.
    pub(crate) fn observe(&self, redis_now_ms: i64) {
        self.origin_ms
            .store(redis_now_ms - self.elapsed_ms(), Ordering::Relaxed);
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.origin_ms.load(Ordering::Relaxed) + self.elapsed_ms()
    }

    fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}
