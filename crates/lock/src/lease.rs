//! How long a lock is ours, by our monotonic clock.

use std::time::{Duration, Instant};

use crate::error::{InvalidArgument, expect};

const LEASE_MIN: Duration = Duration::from_millis(20);
/// Longer, and a crashed holder would keep everybody out for a day; so would a restarted node be.
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const DRIFT_MIN: Duration = Duration::from_millis(2);

/// How far two clocks that tick properly may differ after a time: 1 % and 2 ms.
pub(crate) fn drift(after: Duration) -> Duration {
    after / 100 + DRIFT_MIN
}

/// How often, at the least, a lock that is held is asked for again.
pub(crate) fn check_retry(retry: Duration) -> Result<(), InvalidArgument> {
    expect(
        retry > Duration::ZERO && retry <= LEASE_MAX,
        "retry",
        retry,
        "expected more than nothing and at most 24 hours",
    )
}

/// How much longer others are kept out after a lease that was not given back.
pub(crate) fn check_lock_delay(delay: Duration) -> Result<(), InvalidArgument> {
    expect(
        delay <= LEASE_MAX,
        "lock_delay",
        delay,
        "expected at most 24 hours",
    )
}

/// A lease, and how much of it must be left for it to be of use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    pub length: Duration,
    min_validity: Duration,
}

impl Lease {
    /// Without a minimum of its own, a tenth must be left.
    pub(crate) fn new(
        length: Duration,
        min_validity: Option<Duration>,
    ) -> Result<Self, InvalidArgument> {
        expect(
            (LEASE_MIN..=LEASE_MAX).contains(&length),
            "lease",
            length,
            "expected 20 ms to 24 hours",
        )?;
        let min_validity = min_validity.unwrap_or(length / 10);
        let most = length - drift(length);
        expect(
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

    /// The same for a lease of which the server has granted more, or less, than was asked for.
    #[cfg(any(feature = "etcd", feature = "zookeeper"))]
    pub(crate) fn of_length(self, length: Duration) -> Self {
        Self { length, ..self }
    }

    /// When a lease that was asked for at `started` is over by our clock, unless too little of it is left.
    pub(crate) fn deadline(&self, started: Instant) -> Option<Instant> {
        let deadline = started + self.length.saturating_sub(drift(self.length));
        (deadline.saturating_duration_since(Instant::now()) >= self.min_validity)
            .then_some(deadline)
    }
}
