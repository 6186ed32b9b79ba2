//! Every setting of a [`ZooKeeperLock`], with its default and its validation.

use std::{sync::Arc, time::Duration};

use super::{ZooKeeperLock, ZooKeeperService, session::Sessions};
use crate::{
    error::InvalidArgument,
    options::{LockOptions, lock_options},
    secrets::without_secrets,
    validate::expect_duration,
};

/// Builds a [`ZooKeeperLock`].
#[derive(Debug, Clone)]
pub struct ZooKeeperBuilder {
    servers: String,
    root: String,
    tick_time: Duration,
    options: LockOptions,
}

impl ZooKeeperBuilder {
    /// A lock in the ensemble of these servers: `HOST:PORT`, several with commas between them.
    pub fn new(servers: impl Into<String>) -> Self {
        Self {
            servers: servers.into(),
            root: "/locks".into(),
            tick_time: Duration::from_secs(2),
            options: LockOptions::default(),
        }
    }

    /// The node below which all locks are. It is created if it is missing. Default: `/locks`.
    #[must_use]
    pub fn root(mut self, path: impl Into<String>) -> Self {
        self.root = path.into();
        self
    }

    /// The `tickTime` of the servers. Default: 2 seconds, as theirs.
    #[must_use]
    pub fn tick_time(mut self, tick: Duration) -> Self {
        self.tick_time = tick;
        self
    }

    lock_options! {
        /// The session timeout that is requested. Without an extension a lock is held for this
        /// long, less half a tick. A server grants two to twenty ticks unless it is configured
        /// otherwise; the guard uses the granted timeout. Default: 10 seconds.
        lease;
        /// How much of the lease must be left when the lock is acquired. Default: a tenth of the
        /// lease.
        min_validity;
        /// How long the servers may take for each answer. Default: a quarter of the lease, at most
        /// 2 seconds.
        timeout;
        /// How long after a failure a request is repeated, a second at most. Default: 100 ms, with
        /// jitter.
        retry;
    }

    /// Opens the session at the first acquisition. Returns immediately.
    ///
    /// # Errors
    ///
    /// If a setting is invalid.
    pub async fn build(self) -> Result<ZooKeeperLock, InvalidArgument> {
        let Self {
            servers,
            root,
            tick_time,
            options,
        } = self;
        let timing = options.timing()?;
        expect_duration(
            tick_time <= options.lease / 2,
            "tick_time",
            tick_time,
            "expected at most half the lease",
        )?;
        let timeout = options.service_timeout()?;
        check_servers(&servers)?;
        check_root(&root)?;
        let sessions = Sessions::new(servers, timing.lease.length, timeout);
        Ok(ZooKeeperLock(Arc::new(ZooKeeperService {
            sessions,
            root,
            timing,
            unreported: tick_time / 2,
        })))
    }
}

fn check_servers(servers: &str) -> Result<(), InvalidArgument> {
    let invalid = |server: &str| server.is_empty() || server.contains(['/', '@', ' ']);
    if servers.split(',').any(invalid) {
        return Err(InvalidArgument::Url {
            found: without_secrets(servers),
            expected: "HOST:PORT,...",
        });
    }
    Ok(())
}

fn check_root(root: &str) -> Result<(), InvalidArgument> {
    let mut nodes = root.strip_prefix('/').unwrap_or_default().split('/');
    if nodes.any(|node| matches!(node, "" | "." | "..") || node.contains(char::is_control)) {
        return Err(InvalidArgument::Url {
            found: root.to_owned(),
            expected: "/PATH without a slash at its end as the root",
        });
    }
    Ok(())
}
