//! Every setting of a [`ConsulLock`], with its default, and what is refused.

use std::{fmt, sync::Arc, time::Duration};

use reqwest::{
    Client, Url,
    header::{HeaderMap, HeaderValue},
};

use super::{ConsulLock, agent::Agent};
use crate::{
    error::{InvalidArgument, expect, without_credentials},
    lease::{Lease, check_retry},
};

/// Consul's `session_ttl_min`, unless its servers are told otherwise.
const SESSION_TTL_MIN: Duration = Duration::from_secs(10);
const LOCK_DELAY_MAX: Duration = Duration::from_secs(60);
/// How long, at the most, one question waits for a change. Whoever waits longer asks again.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// How a [`ConsulLock`] shall be.
#[derive(Debug, Clone)]
pub struct ConsulBuilder {
    url: String,
    prefix: String,
    token: Option<Secret>,
    lease: Duration,
    session_ttl_min: Duration,
    lock_delay: Duration,
    min_validity: Option<Duration>,
    timeout: Option<Duration>,
    retry: Duration,
}

#[derive(Clone)]
struct Secret(String);

/// The settings, checked and complete.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub prefix: String,
    pub lease: Lease,
    pub lock_delay: Duration,
    pub retry: Duration,
    pub wait: Duration,
}

impl ConsulBuilder {
    /// A lock in the datacenter of this agent, `http://HOST:PORT`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: "locks".into(),
            token: None,
            lease: Duration::from_secs(10),
            session_ttl_min: SESSION_TTL_MIN,
            lock_delay: Duration::ZERO,
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

    /// The ACL token. It needs `key:read` and `key:write` for the prefix and `session:write` for the agent's node. Default: none.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(Secret(token.into()));
        self
    }

    /// The TTL of the session: how long a lock is ours without being extended. Consul may keep others out for twice as long.
    /// Default: 10 seconds, which is the shortest that Consul grants.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The `session_ttl_min` of the servers: change it only if they were configured so. Default: 10 seconds, as theirs.
    pub fn session_ttl_min(mut self, ttl: Duration) -> Self {
        self.session_ttl_min = ttl;
        self
    }

    /// How much longer others are kept out after a session that ended without a release, for requests of its holder that are still on their
    /// way to some store. At most a minute. Default: none (Consul's own default is 15 seconds).
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// How much of a lease must be left when the lock is ours. Default: a tenth of the lease.
    pub fn min_validity(mut self, validity: Duration) -> Self {
        self.min_validity = Some(validity);
        self
    }

    /// How long Consul is waited for, for each answer. Default: a quarter of the lease, at most 2 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How long after a failure, or during a lock-delay, Consul is asked again. Default: 100 ms, with jitter.
    pub fn retry(mut self, pause: Duration) -> Self {
        self.retry = pause;
        self
    }

    /// Does not wait for Consul.
    ///
    /// # Errors
    ///
    /// Only for settings that make no sense.
    pub async fn build(self) -> Result<ConsulLock, InvalidArgument> {
        let settings = self.settings()?;
        let lease = settings.lease.length;
        let timeout = self
            .timeout
            .unwrap_or((lease / 4).min(Duration::from_secs(2)));
        expect(
            timeout > Duration::ZERO && timeout < lease,
            "timeout",
            timeout,
            "expected less than the lease",
        )?;
        let agent = self.agent(timeout)?;
        Ok(ConsulLock {
            agent: Arc::new(agent),
            settings: Arc::new(settings),
        })
    }

    fn settings(&self) -> Result<Settings, InvalidArgument> {
        let Self {
            prefix,
            lock_delay,
            retry,
            ..
        } = self.clone();
        let lease = Lease::new(self.lease, self.min_validity)?;
        expect(
            lease.length >= self.session_ttl_min,
            "lease",
            lease.length,
            "expected at least the servers' session_ttl_min, usually 10 s",
        )?;
        expect(
            lock_delay <= LOCK_DELAY_MAX,
            "lock_delay",
            lock_delay,
            "expected at most 60 s",
        )?;
        check_retry(retry)?;
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
        let wait = lease.length.min(WAIT_MAX);
        Ok(Settings {
            prefix,
            lease,
            lock_delay,
            retry,
            wait,
        })
    }

    fn agent(&self, timeout: Duration) -> Result<Agent, InvalidArgument> {
        let refused = || InvalidArgument::Url {
            found: without_credentials(&self.url),
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
