//! What was measured.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::super::contestant::Contestant;

/// Of one lock. What was not measured is not there.
#[derive(Debug, Clone)]
pub struct Figures {
    /// Which lock.
    pub contestant: Contestant,
    /// One client.
    pub alone: Timed,
    /// Sixteen that want one lock.
    pub contended: Timed,
    /// How often somebody of the sixteen had the lock while another had it.
    pub given_twice: u64,
    /// Messages for one acquisition and release; none without a network.
    pub messages: Option<f64>,
    /// Of eight waiters, how many a release wakes; none where they are not woken but ask again.
    pub woken: Option<f64>,
}

/// Acquisitions within a time.
#[derive(Debug, Clone)]
pub struct Timed {
    acquire: Histogram<u64>,
    during: Duration,
}

impl Default for Timed {
    fn default() -> Self {
        let acquire = Histogram::new_with_bounds(1, 60_000_000_000, 3);
        let acquire = acquire.unwrap_or_else(|error| {
            unreachable!("a nanosecond to a minute, three digits: {error}")
        });
        Self {
            acquire,
            during: Duration::ZERO,
        }
    }
}

impl Timed {
    pub(super) fn acquired_after(&mut self, after: Duration) {
        self.acquire
            .saturating_record(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn went_on_for(&mut self, during: Duration) {
        self.during += during;
    }

    pub(super) fn add(&mut self, other: &Self) {
        // Their bounds are the same.
        let _ = self.acquire.add(&other.acquire);
    }

    /// How long it took to acquire at this quantile.
    pub fn acquire_ms(&self, quantile: f64) -> Option<f64> {
        (!self.acquire.is_empty()).then(|| self.acquire.value_at_quantile(quantile) as f64 / 1e6)
    }

    /// Acquisitions, each with its release, in a second.
    pub fn per_second(&self) -> Option<f64> {
        (!self.during.is_zero()).then(|| self.acquire.len() as f64 / self.during.as_secs_f64())
    }
}

impl Figures {
    pub(super) fn of(contestant: Contestant) -> Self {
        let (alone, contended) = (Timed::default(), Timed::default());
        Self {
            contestant,
            alone,
            contended,
            given_twice: 0,
            messages: None,
            woken: None,
        }
    }
}
