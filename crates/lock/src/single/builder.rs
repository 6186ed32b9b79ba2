//! Every setting of a [`RedisLock`], with its default, and what is refused.

use std::{sync::Arc, time::Duration};

use super::RedisLock;
use crate::{
    error::InvalidArgument,
    lease::{Lease, check_lock_delay, check_retry},
    redis_server::{Server, Timeouts, Wakeups},
};

/// How a [`RedisLock`] shall be.
#[derive(Debug, Clone)]
pub struct RedisLockBuilder {
    url: String,
    lease: Duration,
    lock_delay: Duration,
    min_validity: Option<Duration>,
    server_timeout: Option<Duration>,
    retry: Duration,
}

/// The settings, checked and complete.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub lease: Lease,
    /// Of the key: the lease and the lock-delay.
    pub ttl: Duration,
    pub retry: Duration,
}

impl RedisLockBuilder {
    /// A lock on this server, `redis://HOST:PORT` or `rediss://HOST:PORT`.
    pub fn new(url: impl Into<String>) -> Self {
        let (lease, retry) = (Duration::from_secs(10), Duration::from_millis(100));
        Self {
            url: url.into(),
            lease,
            lock_delay: Duration::ZERO,
            min_validity: None,
            server_timeout: None,
            retry,
        }
    }

    /// How long a lock is ours without being extended. Default: 10 seconds.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How much longer the server keeps others out after a lease that was not given back. A release frees at once. Default: none.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// How much of a lease must be left when the server has answered. Default: a tenth of the lease.
    pub fn min_validity(mut self, validity: Duration) -> Self {
        self.min_validity = Some(validity);
        self
    }

    /// How long the server is waited for. Default: a twentieth of the lease, at least 10 ms and at most 500 ms.
    pub fn server_timeout(mut self, timeout: Duration) -> Self {
        self.server_timeout = Some(timeout);
        self
    }

    /// How often, at the least, a lock that is held is asked for again. Default: every 100 ms, with jitter.
    pub fn retry(mut self, pause: Duration) -> Self {
        self.retry = pause;
        self
    }

    /// Does not connect yet.
    ///
    /// # Errors
    ///
    /// Only for settings that make no sense.
    pub fn build(self) -> Result<RedisLock, InvalidArgument> {
        let lease = Lease::new(self.lease, self.min_validity)?;
        check_lock_delay(self.lock_delay)?;
        check_retry(self.retry)?;
        let timeouts = Timeouts::new(
            "server_timeout",
            self.server_timeout,
            self.lease,
            self.lease,
        )?;
        let wakeups = Arc::new(Wakeups::default());
        let server = Arc::new(Server::new(&self.url, timeouts, &wakeups)?);
        wakeups.attach(Arc::clone(&server));
        Ok(RedisLock::new(
            server,
            Settings {
                lease,
                ttl: self.lease + self.lock_delay,
                retry: self.retry,
            },
            wakeups,
        ))
    }
}
