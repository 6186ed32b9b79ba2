//! Every setting of an [`EtcdLock`], with its default and its validation.

use std::{sync::Arc, time::Duration};

use etcd_client::{Client, ConnectOptions};

use super::{EtcdLock, EtcdService, server::Server};
use crate::{
    error::InvalidArgument,
    options::{LockOptions, lock_options},
    secrets::without_secrets,
};

/// Builds an [`EtcdLock`].
#[derive(Debug, Clone)]
pub struct EtcdBuilder {
    endpoints: Vec<String>,
    prefix: String,
    options: LockOptions,
}

impl EtcdBuilder {
    /// A lock in the cluster that has these members, `http://HOST:PORT` each. Members that are not
    /// listed are never used.
    pub fn new<U: Into<String>>(endpoints: impl IntoIterator<Item = U>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: "locks".into(),
            options: LockOptions::default(),
        }
    }

    /// Prefix of the keys of all locks. No other program should write there. Default: `locks`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    lock_options! {
        /// How long a lock is held without an extension. etcd counts in whole seconds and has a
        /// shortest lease, so this is rounded up and the granted lease may be longer still; the
        /// guard uses the granted lease. Default: 10 seconds.
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

    /// Connects in the background and returns immediately.
    ///
    /// # Errors
    ///
    /// If a setting is invalid.
    pub async fn build(self) -> Result<EtcdLock, InvalidArgument> {
        let timing = self.options.timing()?;
        let timeout = self.options.service_timeout()?;
        let server = Server {
            client: connect(&self.endpoints, timeout).await?,
            label: self.endpoints.join(","),
            timeout,
        };
        Ok(EtcdLock(Arc::new(EtcdService {
            server: Arc::new(server),
            prefix: self.prefix,
            timing,
        })))
    }
}

/// Connections are opened when they are first needed. The client would take any other scheme for a
/// host name.
async fn connect(endpoints: &[String], timeout: Duration) -> Result<Client, InvalidArgument> {
    if endpoints.is_empty() {
        return Err(InvalidArgument::Nodes("found none".into()));
    }
    let refused = |url: &String| InvalidArgument::Url {
        found: without_secrets(url),
        expected: "http://HOST:PORT",
    };
    let plain = |url: &&String| {
        url.strip_prefix("http://")
            .map(|host| host.trim_end_matches('/'))
            .is_some_and(|host| !host.is_empty() && !host.contains(['/', '@']))
    };
    if let Some(url) = endpoints.iter().find(|url| !plain(url)) {
        return Err(refused(url));
    }
    // A member that has lost its leader ends its watches instead of leaving them silent, and a
    // broken connection is noticed while it is idle.
    let options = ConnectOptions::new()
        .with_require_leader(true)
        .with_connect_timeout(timeout)
        .with_keep_alive(timeout.max(Duration::from_secs(1)), timeout)
        .with_keep_alive_while_idle(true);
    Client::connect(endpoints, Some(options))
        .await
        .map_err(|_| refused(&endpoints.join(",")))
}
