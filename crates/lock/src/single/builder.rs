//! Every setting of a [`RedisLock`], with its default and its validation.

use std::sync::Arc;

use super::RedisLock;
use crate::{
    error::InvalidArgument,
    options::{LockOptions, lock_options},
    redis_server::{Server, Timeouts, Wakeups},
};

/// Builds a [`RedisLock`].
#[derive(Debug, Clone)]
pub struct RedisLockBuilder {
    url: String,
    options: LockOptions,
}

impl RedisLockBuilder {
    /// A lock on this server, `redis://HOST:PORT` or `rediss://HOST:PORT`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            options: LockOptions::default(),
        }
    }

    lock_options! {
        /// How long a lock is held without an extension. Default: 10 seconds.
        lease;
        /// How much longer the lock stays closed after a lease that ended without a release. A
        /// release frees the lock immediately. Default: none.
        lock_delay;
        /// How much of the lease must be left when the server has answered. Default: a tenth of the
        /// lease.
        min_validity;
        /// How long the server may take for each answer. Default: a twentieth of the lease, at
        /// least 10 ms and at most 500 ms.
        server_timeout => timeout;
        /// Longest pause between two attempts while the lock is held. Default: 100 ms, with jitter.
        retry;
    }

    /// Connects at the first acquisition. Returns immediately.
    ///
    /// # Errors
    ///
    /// If a setting is invalid.
    pub fn build(self) -> Result<RedisLock, InvalidArgument> {
        let timing = self.options.timing()?;
        let lease = self.options.lease;
        let timeouts = Timeouts::new("server_timeout", self.options.timeout, lease, lease)?;
        let wakeups = Arc::new(Wakeups::default());
        let server = Arc::new(Server::new(&self.url, timeouts, &wakeups)?);
        wakeups.attach(Arc::clone(&server));
        Ok(RedisLock::new(server, timing, wakeups))
    }
}
