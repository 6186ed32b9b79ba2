//! Every setting of a [`ZooKeeperLock`], with its default, and what is refused.

use std::{sync::Arc, time::Duration};

use super::{Inner, ZooKeeperLock, session::Sessions};
use crate::{
    error::{InvalidArgument, expect, without_credentials},
    lease::{Lease, check_retry},
};

/// How a [`ZooKeeperLock`] shall be.
#[derive(Debug, Clone)]
pub struct ZooKeeperBuilder {
    servers: String,
    root: String,
    lease: Duration,
    tick_time: Duration,
    min_validity: Option<Duration>,
    timeout: Option<Duration>,
    retry: Duration,
}

/// The settings, checked and complete.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub root: String,
    pub lease: Lease,
    /// What may be missing of a session when a server dies.
    pub unreported: Duration,
    pub retry: Duration,
}

impl ZooKeeperBuilder {
    /// A lock in the ensemble of these servers: `HOST:PORT`, several with commas between them.
    pub fn new(servers: impl Into<String>) -> Self {
        Self {
            servers: servers.into(),
            root: "/locks".into(),
            lease: Duration::from_secs(10),
            tick_time: Duration::from_secs(2),
            min_validity: None,
            timeout: None,
            retry: Duration::from_millis(100),
        }
    }

    /// The node below which all locks are. It is made if it is not there. Default: `/locks`.
    pub fn root(mut self, path: impl Into<String>) -> Self {
        self.root = path.into();
        self
    }

    /// The timeout that is asked for the session: for so long, less half a tick, a lock is ours without being extended. A server grants from
    /// two to twenty ticks unless it is told otherwise; the guard goes by what is granted. Default: 10 seconds.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The `tickTime` of the servers. Default: 2 seconds, as theirs.
    pub fn tick_time(mut self, tick: Duration) -> Self {
        self.tick_time = tick;
        self
    }

    /// How much of a lease must be left when the lock is ours. Default: a tenth of the lease.
    pub fn min_validity(mut self, validity: Duration) -> Self {
        self.min_validity = Some(validity);
        self
    }

    /// How long the servers are waited for, for each answer. Default: a quarter of the lease, at most 2 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How long after a failure the servers are asked again. Default: 100 ms, with jitter.
    pub fn retry(mut self, pause: Duration) -> Self {
        self.retry = pause;
        self
    }

    /// Does not wait for any server.
    ///
    /// # Errors
    ///
    /// Only for settings that make no sense.
    pub async fn build(self) -> Result<ZooKeeperLock, InvalidArgument> {
        let Self {
            servers,
            root,
            tick_time,
            retry,
            ..
        } = self;
        let lease = Lease::new(self.lease, self.min_validity)?;
        expect(
            tick_time <= lease.length / 2,
            "tick_time",
            tick_time,
            "expected at most half the lease",
        )?;
        let timeout = self
            .timeout
            .unwrap_or((lease.length / 4).min(Duration::from_secs(2)));
        expect(
            timeout > Duration::ZERO && timeout < lease.length,
            "timeout",
            timeout,
            "expected less than the lease",
        )?;
        check_retry(retry)?;
        if servers
            .split(',')
            .any(|server| server.is_empty() || server.contains(['/', '@', ' ']))
        {
            return Err(InvalidArgument::Url {
                found: without_credentials(&servers),
                expected: "HOST:PORT,...",
            });
        }
        let mut nodes = root.strip_prefix('/').unwrap_or_default().split('/');
        if nodes.any(|node| matches!(node, "" | "." | "..") || node.contains(char::is_control)) {
            return Err(InvalidArgument::Url {
                found: root,
                expected: "/PATH without a slash at its end as the root",
            });
        }
        let sessions = Sessions::new(servers, lease.length, timeout);
        let settings = Settings {
            root,
            lease,
            unreported: tick_time / 2,
            retry,
        };
        Ok(ZooKeeperLock(Arc::new(Inner { sessions, settings })))
    }
}
