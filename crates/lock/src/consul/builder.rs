//! Every setting of a [`ConsulLock`], with its default and its validation.

use std::{fmt, sync::Arc, time::Duration};

use reqwest::{
    Client, Url,
    header::{HeaderMap, HeaderValue},
};

use super::{ConsulLock, agent::Agent};
use crate::{
    error::InvalidArgument,
    options::{LockOptions, Timing, lock_options},
    secrets::without_secrets,
    validate::expect_duration,
};

/// Default of Consul's `session_ttl_min`.
const SESSION_TTL_MIN: Duration = Duration::from_secs(10);
const LOCK_DELAY_MAX: Duration = Duration::from_secs(60);
/// Longest blocking query. A longer wait repeats the query.
const QUERY_WAIT_MAX: Duration = Duration::from_secs(30);

/// Builds a [`ConsulLock`].
#[derive(Debug, Clone)]
pub struct ConsulBuilder {
    url: String,
    prefix: String,
    token: Option<Secret>,
    session_ttl_min: Duration,
    options: LockOptions,
}

#[derive(Clone)]
struct Secret(String);

/// The settings, validated.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub prefix: String,
    pub timing: Timing,
    /// Length of a blocking query.
    pub query_wait: Duration,
}

impl ConsulBuilder {
    /// A lock in the datacenter of this agent, `http://HOST:PORT`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: "locks".into(),
            token: None,
            session_ttl_min: SESSION_TTL_MIN,
            options: LockOptions::default(),
        }
    }

    /// Prefix of the keys of all locks. No other program should write there. Default: `locks`.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The ACL token. It needs `key:read` and `key:write` for the prefix and `session:write` for
    /// the agent's node. Default: none.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Secret(token.into()));
        self
    }

    /// The `session_ttl_min` of the servers. Change it only if they are configured so. Default: 10
    /// seconds, as theirs.
    #[must_use]
    pub fn session_ttl_min(mut self, ttl: Duration) -> Self {
        self.session_ttl_min = ttl;
        self
    }

    lock_options! {
        /// The TTL of the session: how long a lock is held without an extension. After a crash
        /// Consul may keep the lock closed for twice as long. Default: 10 seconds, the shortest
        /// that Consul grants.
        lease;
        /// How much longer the lock stays closed after a session that ended without a release. It
        /// protects stores from requests of the old holder that are still in flight. At most a
        /// minute. Default: none (Consul's own default is 15 seconds).
        lock_delay;
        /// How much of the lease must be left when the lock is acquired. Default: a tenth of the
        /// lease.
        min_validity;
        /// How long Consul may take for each answer. Default: a quarter of the lease, at most 2
        /// seconds.
        timeout;
        /// Pause after a failure, and between two attempts during a lock-delay, a second at most.
        /// Default: 100 ms, with jitter.
        retry;
    }

    /// Connects at the first acquisition. Returns immediately.
    ///
    /// # Errors
    ///
    /// If a setting is invalid.
    pub async fn build(self) -> Result<ConsulLock, InvalidArgument> {
        let settings = self.settings()?;
        let timeout = self.options.service_timeout()?;
        let agent = self.agent(timeout)?;
        Ok(ConsulLock {
            agent: Arc::new(agent),
            settings: Arc::new(settings),
        })
    }

    fn settings(&self) -> Result<Settings, InvalidArgument> {
        let LockOptions {
            lease, lock_delay, ..
        } = self.options;
        expect_duration(
            lock_delay <= LOCK_DELAY_MAX,
            "lock_delay",
            lock_delay,
            "expected at most 60 s",
        )?;
        let timing = self.options.timing()?;
        expect_duration(
            lease >= self.session_ttl_min,
            "lease",
            lease,
            "expected at least the servers' session_ttl_min, usually 10 s",
        )?;
        let prefix = self.prefix.clone();
        // Newer servers refuse every other character.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b",-_".contains(&byte);
        if prefix
            .split('/')
            .any(|part| part.is_empty() || !part.bytes().all(plain))
        {
            return Err(InvalidArgument::Url {
                found: prefix,
                expected: "letters, digits and ,-_ with single slashes between them as the prefix",
            });
        }
        Ok(Settings {
            prefix,
            timing,
            query_wait: lease.min(QUERY_WAIT_MAX),
        })
    }

    fn agent(&self, timeout: Duration) -> Result<Agent, InvalidArgument> {
        let refused = || InvalidArgument::Url {
            found: without_secrets(&self.url),
            expected: "http://HOST:PORT",
        };
        let url = Url::parse(&self.url).map_err(|_| refused())?;
        let plain = url.scheme() == "http"
            && url.path() == "/"
            && url.query().is_none()
            && url.username().is_empty();
        let host = url.host_str().filter(|_| plain).ok_or_else(refused)?;
        let label = format!("{host}:{}", url.port_or_known_default().unwrap_or_default());
        let mut headers = HeaderMap::new();
        if let Some(Secret(token)) = &self.token {
            let mut token = HeaderValue::from_str(token).map_err(|_| InvalidArgument::Url {
                found: "***".into(),
                expected: "an ACL token of printable characters",
            })?;
            token.set_sensitive(true);
            headers.insert("X-Consul-Token", token);
        }
        let http = Client::builder()
            .no_proxy()
            .connect_timeout(timeout)
            .default_headers(headers)
            .build()
            .map_err(|_| refused())?;
        Ok(Agent {
            http,
            url: format!("http://{label}/v1"),
            label,
            timeout,
        })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
