//! Results of the load.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::backend::Backend;

/// Figures of one lock. What was not measured is `None` or empty.
#[derive(Debug, Clone)]
pub struct LoadFigures {
    /// The lock.
    pub backend: Backend,
    /// One client.
    pub alone: Timings,
    /// Sixteen clients that compete for one lock.
    pub contended: Timings,
    /// How often one of the sixteen clients got the lock while another one held it.
    pub double_grants: u64,
    /// Messages for one acquisition and release. `None`: the lock uses no network.
    pub messages: Option<f64>,
    /// Of eight waiters, how many a release wakes. `None`: the waiters poll.
    pub woken: Option<f64>,
}

impl LoadFigures {
    pub(super) fn new(backend: Backend) -> Self {
        Self {
            backend,
            alone: Timings::default(),
            contended: Timings::default(),
            double_grants: 0,
            messages: None,
            woken: None,
        }
    }
}

/// Latencies of the acquisitions within a period.
#[derive(Debug, Clone)]
pub struct Timings {
    /// In nanoseconds.
    acquire: Histogram<u64>,
    period: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        let acquire = Histogram::new_with_bounds(1, 60_000_000_000, 3);
        let acquire = acquire.unwrap_or_else(|error| {
            unreachable!("1 ns to 60 s with three digits are valid bounds: {error}")
        });
        Self {
            acquire,
            period: Duration::ZERO,
        }
    }
}

impl Timings {
    /// Adds one acquisition.
    pub(super) fn record(&mut self, latency: Duration) {
        self.acquire
            .saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds the time in which acquisitions were recorded.
    pub(super) fn add_period(&mut self, period: Duration) {
        self.period += period;
    }

    /// Adds the acquisitions of another client in the same period.
    pub(super) fn add_acquisitions(&mut self, other: &Self) {
        // Cannot fail: the bounds are the same.
        let _ = self.acquire.add(&other.acquire);
    }

    /// Latency of an acquisition at this quantile, in milliseconds.
    pub fn acquire_ms(&self, quantile: f64) -> Option<f64> {
        (!self.acquire.is_empty()).then(|| self.acquire.value_at_quantile(quantile) as f64 / 1e6)
    }

    /// Acquisitions per second, each with its release.
    pub fn per_second(&self) -> Option<f64> {
        (!self.period.is_zero()).then(|| self.acquire.len() as f64 / self.period.as_secs_f64())
    }
}
