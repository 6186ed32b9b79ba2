//! How long we hold a lock, by our monotonic clock.

use std::time::{Duration, Instant};

use crate::{error::InvalidArgument, validate::expect_duration};

const LEASE_MIN: Duration = Duration::from_millis(20);
/// A longer lease would let a crashed holder close a lock for more than a day, and would keep a
/// restarted node from voting for as long.
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const DRIFT_MIN: Duration = Duration::from_millis(2);

/// How far two correct clocks may drift apart in that time: 1 % and 2 ms.
pub(crate) fn drift(after: Duration) -> Duration {
    after / 100 + DRIFT_MIN
}

/// The length of a lease, and how much of it must be left for an acquisition to be of use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    pub length: Duration,
    min_validity: Duration,
}

impl Lease {
    /// `min_validity` defaults to a tenth of the lease.
    pub(crate) fn new(
        length: Duration,
        min_validity: Option<Duration>,
    ) -> Result<Self, InvalidArgument> {
        expect_duration(
            (LEASE_MIN..=LEASE_MAX).contains(&length),
            "lease",
            length,
            "expected 20 ms to 24 hours",
        )?;
        let min_validity = min_validity.unwrap_or(length / 10);
        let most = length - drift(length);
        expect_duration(
            min_validity < most,
            "min_validity",
            min_validity,
            "expected less than the lease without the drift",
        )?;
        Ok(Self {
            length,
            min_validity,
        })
    }

    /// The same terms for a lease that the server granted with another length.
    #[cfg(feature = "_ephemeral_queue")]
    pub(crate) fn of_length(self, length: Duration) -> Self {
        Self { length, ..self }
    }

    /// When a lease that was requested at `started` ends by our clock. `None` if too little of it
    /// is left.
    pub(crate) fn deadline(&self, started: Instant) -> Option<Instant> {
        let deadline = started + self.length.saturating_sub(drift(self.length));
        (deadline.saturating_duration_since(Instant::now()) >= self.min_validity)
            .then_some(deadline)
    }
}
