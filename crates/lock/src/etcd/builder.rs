//! Every setting of an [`EtcdLock`], with its default, and what is refused.

use std::{sync::Arc, time::Duration};

use etcd_client::{Client, ConnectOptions};

use super::{EtcdLock, server::Server};
use crate::{
    error::{InvalidArgument, expect, without_credentials},
    lease::{Lease, check_retry},
};

/// How an [`EtcdLock`] shall be.
#[derive(Debug, Clone)]
pub struct EtcdBuilder {
    endpoints: Vec<String>,
    prefix: String,
    lease: Duration,
    min_validity: Option<Duration>,
    timeout: Option<Duration>,
    retry: Duration,
}

/// The settings, checked and complete.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub prefix: String,
    pub lease: Lease,
    pub retry: Duration,
}

impl EtcdBuilder {
    /// A lock in the cluster that has these members, `http://HOST:PORT` each. Members that are not named are not asked.
    pub fn new<U: Into<String>>(endpoints: impl IntoIterator<Item = U>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: "locks".into(),
            lease: Duration::from_secs(10),
            min_validity: None,
            timeout: None,
            retry: Duration::from_millis(100),
        }
    }

    /// What the keys of all locks begin with. Nobody else should write there. Default: `locks`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a lock is ours without being extended. etcd counts in whole seconds and has a shortest lease of its own, so this is rounded up,
    /// and what is granted may be longer still; the guard goes by what is granted. Default: 10 seconds.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
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
    pub async fn build(self) -> Result<EtcdLock, InvalidArgument> {
        let Self { lease, retry, .. } = self;
        let lease = Lease::new(lease, self.min_validity)?;
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
        let client = connect(&self.endpoints, timeout).await?;
        let server = Server {
            client,
            label: self.endpoints.join(","),
            timeout,
        };
        Ok(EtcdLock {
            server: Arc::new(server),
            settings: Arc::new(Settings {
                prefix: self.prefix,
                lease,
                retry,
            }),
        })
    }
}

/// Connections are made when they are needed. The client would take any other scheme for a host.
async fn connect(endpoints: &[String], timeout: Duration) -> Result<Client, InvalidArgument> {
    if endpoints.is_empty() {
        return Err(InvalidArgument::Nodes("found none".into()));
    }
    let refused = |url: &String| InvalidArgument::Url {
        found: without_credentials(url),
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
    // A member that has lost its leader ends its watches instead of keeping quiet, and a connection that is cut is noticed while it is idle.
    let options = ConnectOptions::new()
        .with_require_leader(true)
        .with_connect_timeout(timeout)
        .with_keep_alive(timeout.max(Duration::from_secs(1)), timeout)
        .with_keep_alive_while_idle(true);
    Client::connect(endpoints, Some(options))
        .await
        .map_err(|_| refused(&endpoints.join(",")))
}
