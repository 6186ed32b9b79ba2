//! The options that the builders of all backends share: defaults, setters and validation.

use std::time::Duration;

use crate::{
    error::InvalidArgument,
    lease::{LEASE_MAX, Lease},
    validate::expect_duration,
};

/// Longest pause after a request that failed: no release tells that the servers are well again.
const FAILED_RETRY_MAX: Duration = Duration::from_secs(1);

/// The shared options as the caller set them.
#[derive(Debug, Clone)]
pub(crate) struct LockOptions {
    pub lease: Duration,
    pub lock_delay: Duration,
    pub min_validity: Option<Duration>,
    pub timeout: Option<Duration>,
    pub retry: Duration,
}

/// The shared options, validated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub lease: Lease,
    /// Time after a lease that ended without a release, in which the lock stays closed.
    #[cfg(any(feature = "_redis_server", feature = "_sql", feature = "consul"))]
    pub lock_delay: Duration,
    /// Longest pause between two attempts, while another client holds the lock.
    pub retry: Duration,
}

impl Timing {
    /// Pause before a request is repeated that failed, or whose success no server reports.
    pub(crate) fn failed_retry(&self) -> Duration {
        self.retry.min(FAILED_RETRY_MAX)
    }
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            lock_delay: Duration::ZERO,
            min_validity: None,
            timeout: None,
            retry: Duration::from_millis(100),
        }
    }
}

impl LockOptions {
    pub(crate) fn timing(&self) -> Result<Timing, InvalidArgument> {
        let Self {
            lock_delay, retry, ..
        } = *self;
        let lease = Lease::new(self.lease, self.min_validity)?;
        expect_duration(
            lock_delay <= LEASE_MAX,
            "lock_delay",
            lock_delay,
            "expected at most 24 hours",
        )?;
        expect_duration(
            retry > Duration::ZERO && retry <= LEASE_MAX,
            "retry",
            retry,
            "expected more than nothing and at most 24 hours",
        )?;
        Ok(Timing {
            lease,
            #[cfg(any(feature = "_redis_server", feature = "_sql", feature = "consul"))]
            lock_delay,
            retry,
        })
    }

    /// How long a coordination service may take for an answer. Default: a quarter of the lease, at
    /// most 2 seconds.
    #[cfg(any(feature = "_ephemeral_queue", feature = "consul"))]
    pub(crate) fn service_timeout(&self) -> Result<Duration, InvalidArgument> {
        let default = (self.lease / 4).min(Duration::from_secs(2));
        let timeout = self.timeout.unwrap_or(default);
        expect_duration(
            timeout > Duration::ZERO && timeout < self.lease,
            "timeout",
            timeout,
            "expected less than the lease",
        )?;
        Ok(timeout)
    }

    /// How long a database may take for an answer. Default: a tenth of the lease, at least 50 ms
    /// and at most 2 seconds.
    #[cfg(feature = "_sql")]
    pub(crate) fn database_timeout(&self) -> Result<Duration, InvalidArgument> {
        let default = (self.lease / 10).clamp(Duration::from_millis(50), Duration::from_secs(2));
        let timeout = self.timeout.unwrap_or(default);
        expect_duration(
            timeout > Duration::ZERO && timeout <= LEASE_MAX,
            "timeout",
            timeout,
            "expected more than nothing and at most 24 hours",
        )?;
        Ok(timeout)
    }
}

impl Timing {
    /// How long the lock stays closed without a release: the lease and the lock-delay.
    #[cfg(any(feature = "_redis_server", feature = "_sql"))]
    pub(crate) fn ttl(&self) -> Duration {
        self.lease.length + self.lock_delay
    }
}

/// The setters of the shared options. Each builder lists those that it has, with its own
/// documentation; `NAME => OPTION` gives an option another name.
macro_rules! lock_options {
    ($($(#[$doc:meta])* $setter:ident $(=> $option:ident)?;)+) => {
        $(crate::options::lock_options! { @ $(#[$doc])* $setter, $($option,)? $setter })+
    };
    (@ $(#[$doc:meta])* $setter:ident, $option:ident $(, $_rest:ident)?) => {
        $(#[$doc])*
        #[must_use]
        pub fn $setter(mut self, $option: std::time::Duration) -> Self {
            self.options.$option = $option.into();
            self
        }
    };
}
pub(crate) use lock_options;
