//! Every setting of a [`Redlock`], with its default, and what is refused.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::sync::Notify;

use crate::{
    clock::drift,
    error::InvalidArgument,
    node::{Node, Patience},
    redlock::Redlock,
};

const LEASE_MIN: Duration = Duration::from_millis(20);
/// Longer, and a crashed holder would keep everybody out for a day; so would a restarted node be.
const LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const KEEP_MIN: Duration = Duration::from_secs(60 * 60);

/// How a [`Redlock`] shall be.
#[derive(Debug, Clone)]
pub struct RedlockBuilder {
    nodes: Vec<String>,
    lease: Duration,
    lock_delay: Duration,
    longest_lease: Option<Duration>,
    min_validity: Option<Duration>,
    node_timeout: Option<Duration>,
    retry: Duration,
    keep_tokens: Duration,
}

/// The settings, checked and complete.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub lease: Duration,
    /// Of the key on a node: the lease and the lock-delay.
    pub ttl: Duration,
    pub min_validity: Duration,
    pub retry: Duration,
    pub keep_tokens: Duration,
    pub longest_lease: Duration,
}

impl RedlockBuilder {
    /// A lock on these servers, `redis://HOST:PORT` or `rediss://HOST:PORT` each. They must be independent of each other: no replicas, no
    /// cluster. Three or five are sensible.
    pub fn new<U: Into<String>>(nodes: impl IntoIterator<Item = U>) -> Self {
        Self {
            nodes: nodes.into_iter().map(Into::into).collect(),
            lease: Duration::from_secs(10),
            lock_delay: Duration::ZERO,
            longest_lease: None,
            min_validity: None,
            node_timeout: None,
            retry: Duration::from_millis(100),
            keep_tokens: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }

    /// How long a lock is ours without being extended. Default: 10 seconds.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How much longer the nodes keep others out after a lease that was not given back, for requests of its holder that are still on their
    /// way to some store. A release frees at once. Default: none.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// The longest lease, with its lock-delay, that anybody uses on these nodes: a node that may have forgotten locks does not vote for
    /// so long. Everybody should set the same. Default: this lease with this lock-delay.
    pub fn longest_lease(mut self, longest: Duration) -> Self {
        self.longest_lease = Some(longest);
        self
    }

    /// How much of a lease must be left when the quorum has been reached. Default: a tenth of the lease.
    pub fn min_validity(mut self, validity: Duration) -> Self {
        self.min_validity = Some(validity);
        self
    }

    /// How long one node is waited for. Default: a twentieth of the lease, at least 10 ms and at most 500 ms.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = Some(timeout);
        self
    }

    /// How often, at the least, a lock that is held is asked for again. Default: every 100 ms, with jitter.
    pub fn retry(mut self, pause: Duration) -> Self {
        self.retry = pause;
        self
    }

    /// How long a node remembers the token of a name that nobody uses. Later tokens of the name start above the highest token that the
    /// node has accepted for any name, so they still rise. Default: a week.
    pub fn keep_tokens(mut self, keep: Duration) -> Self {
        self.keep_tokens = keep;
        self
    }

    /// Connects to the nodes and looks at their guards. Nodes that are new to locks, or have restarted, vote after the longest lease; if
    /// there is no quorum without them, this waits for them. It does not wait for nodes that do not answer.
    ///
    /// # Errors
    ///
    /// Only for settings that make no sense.
    pub async fn build(self) -> Result<Redlock, InvalidArgument> {
        let settings = self.settings()?;
        let answer = self.node_timeout.unwrap_or((self.lease / 20).clamp(Duration::from_millis(10), Duration::from_millis(500)));
        expect(answer > Duration::ZERO && answer < self.lease, "node_timeout", answer, "expected less than the lease")?;
        let connect = answer.max(Duration::from_secs(1));
        let patience = Patience { answer, connect, longest_lease: settings.longest_lease };
        let alarm = Arc::new(Notify::new());
        let nodes =
            self.nodes.iter().map(|url| Ok(Arc::new(Node::new(url, patience, Arc::clone(&alarm))?))).collect::<Result<Vec<_>, _>>()?;
        let distinct: BTreeSet<_> = nodes.iter().map(|node| &node.label).collect();
        if nodes.is_empty() || distinct.len() < nodes.len() {
            return Err(InvalidArgument::Nodes(format!("found {:?}", nodes.iter().map(|node| &node.label).collect::<Vec<_>>())));
        }
        Ok(Redlock::open(nodes, settings, alarm).await)
    }

    fn settings(&self) -> Result<Settings, InvalidArgument> {
        let Self { lease, lock_delay, retry, keep_tokens, .. } = *self;
        expect((LEASE_MIN..=LEASE_MAX).contains(&lease), "lease", lease, "expected 20 ms to 24 hours")?;
        expect(lock_delay <= LEASE_MAX, "lock_delay", lock_delay, "expected at most 24 hours")?;
        let ttl = lease + lock_delay;
        let longest_lease = self.longest_lease.unwrap_or(ttl);
        expect((ttl..=2 * LEASE_MAX).contains(&longest_lease), "longest_lease", longest_lease, "expected at least lease and lock_delay")?;
        let min_validity = self.min_validity.unwrap_or(lease / 10);
        expect(min_validity + drift(lease) < lease, "min_validity", min_validity, "expected less than the lease without the drift")?;
        expect(retry > Duration::ZERO && retry <= LEASE_MAX, "retry", retry, "expected more than nothing and at most 24 hours")?;
        let keep_min = KEEP_MIN.max(2 * ttl);
        expect(
            (keep_min..=1000 * LEASE_MAX).contains(&keep_tokens),
            "keep_tokens",
            keep_tokens,
            "expected an hour or two leases to 1000 days",
        )?;
        Ok(Settings { lease, ttl, min_validity, retry, keep_tokens, longest_lease })
    }
}

fn expect(holds: bool, setting: &'static str, found: Duration, expected: &'static str) -> Result<(), InvalidArgument> {
    if holds { Ok(()) } else { Err(InvalidArgument::Duration { setting, found, expected }) }
}
