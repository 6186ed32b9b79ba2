//! Every setting of a [`RedisLock`], with its default and its validation.

use std::sync::Arc;

use redis::TlsCertificates;

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
    tls: Option<TlsCertificates>,
    options: LockOptions,
}

impl RedisLockBuilder {
    /// A lock on this server, `redis://HOST:PORT` or `rediss://HOST:PORT`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            tls: None,
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

    /// For `rediss`: the authority that signed the servers' certificates, and the certificate that
    /// the servers demand. Default: the authorities that browsers trust, and no certificate.
    pub fn tls(mut self, certificates: TlsCertificates) -> Self {
        self.tls = Some(certificates);
        self
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
        let server = Arc::new(Server::new(
            &self.url,
            self.tls.as_ref(),
            timeouts,
            &wakeups,
        )?);
        wakeups.attach(Arc::clone(&server));
        Ok(RedisLock::new(server, timing, wakeups))
    }
}
