//! Every setting of a [`Redlock`], with its default, and what is refused.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use redis::TlsCertificates;
use tokio::sync::Notify;

use super::{Redlock, node::Node};
use crate::{
    error::InvalidArgument,
    lease::LEASE_MAX,
    options::{LockOptions, Timing, lock_options},
    redis_server::{Server, Timeouts, Wakeups},
    validate::expect_duration,
};

const KEEP_MIN: Duration = Duration::from_secs(60 * 60);

/// How a [`Redlock`] shall be.
#[derive(Debug, Clone)]
pub struct RedlockBuilder {
    nodes: Vec<String>,
    tls: Option<TlsCertificates>,
    options: LockOptions,
    longest_lease: Option<Duration>,
    keep_tokens: Duration,
    fair: bool,
    waiter_timeout: Duration,
}

/// The settings, checked and complete.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub timing: Timing,
    pub keep_tokens: Duration,
    pub longest_lease: Duration,
    /// Time after which a silent waiter loses its place in the queue; `None`: there is no queue.
    pub queue: Option<Duration>,
}

impl RedlockBuilder {
    /// A lock on these servers, `redis://HOST:PORT` or `rediss://HOST:PORT` each. They must be
    /// independent of each other: no replicas, no cluster. Three or five are sensible.
    ///
    /// `redis://HOST:PORT?durable=true` declares a server durable: it keeps its data when it
    /// restarts, and is never restored from a backup or replaced by a replica. If its settings
    /// agree (`appendonly yes`, `appendfsync always`), it votes at once after a restart; and if all
    /// servers are new and declared so, they vote at once. See the README.
    pub fn new<U: Into<String>>(nodes: impl IntoIterator<Item = U>) -> Self {
        Self {
            nodes: nodes.into_iter().map(Into::into).collect(),
            tls: None,
            options: LockOptions::default(),
            longest_lease: None,
            keep_tokens: Duration::from_secs(7 * 24 * 60 * 60),
            fair: false,
            waiter_timeout: Duration::from_secs(1),
        }
    }

    lock_options! {
        /// How long a lock is held without an extension. Default: 10 seconds.
        lease;
        /// How much longer the lock stays closed after a lease that ended without a release. It
        /// protects stores from requests of the old holder that are still in flight. A release
        /// frees the lock immediately. Default: none.
        lock_delay;
        /// How much of the lease must be left when the quorum has been reached. Default: a tenth of
        /// the lease.
        min_validity;
        /// How long one node may take for each answer. Default: a twentieth of the lease, at least
        /// 10 ms and at most 500 ms.
        node_timeout => timeout;
        /// Longest pause between two attempts while the lock is held. Default: 100 ms, with jitter.
        retry;
    }

    /// For `rediss`: the authority that signed the servers' certificates, and the certificate that
    /// the servers demand. Default: the authorities that browsers trust, and no certificate.
    pub fn tls(mut self, certificates: TlsCertificates) -> Self {
        self.tls = Some(certificates);
        self
    }

    /// The longest lease, with its lock-delay, of all clients of these nodes. A node that may have
    /// lost locks does not vote for that long, so all clients should set the same value. Default:
    /// this lease with this lock-delay.
    pub fn longest_lease(mut self, longest: Duration) -> Self {
        self.longest_lease = Some(longest);
        self
    }

    /// Serves waiters in the order in which they came, across processes. It costs two round trips
    /// more for an acquisition, and only clients that set it keep the order. Default: off; the
    /// first request after a release gets the lock.
    pub fn fair(mut self, fair: bool) -> Self {
        self.fair = fair;
        self
    }

    /// In fair mode, how long a waiter that has vanished may keep those behind it waiting. Default:
    /// 1 second.
    pub fn waiter_timeout(mut self, timeout: Duration) -> Self {
        self.waiter_timeout = timeout;
        self
    }

    /// How long a node remembers the token of a name that is not in use. Later tokens of the name
    /// start above the highest token that the node has accepted for any name, so they still rise.
    /// Default: a week.
    pub fn keep_tokens(mut self, keep: Duration) -> Self {
        self.keep_tokens = keep;
        self
    }

    /// Connects to the nodes and looks at their guards. Nodes that are new to locks, or have
    /// restarted, vote after the longest lease; if there is no quorum without them, this waits for
    /// them. It does not wait for nodes that do not answer.
    ///
    /// # Errors
    ///
    /// Only for settings that make no sense.
    pub async fn build(self) -> Result<Redlock, InvalidArgument> {
        let redlock = self.build_without_waiting()?;
        redlock.wait_for_a_quorum().await;
        Ok(redlock)
    }

    /// Connects to the nodes in the background. The caller can inspect them ([`Redlock::view`]) or
    /// wait for them ([`Redlock::wait_for_a_quorum`]). A node does not vote before it was probed.
    ///
    /// # Errors
    ///
    /// Only for settings that make no sense.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn build_without_waiting(self) -> Result<Redlock, InvalidArgument> {
        let settings = self.settings()?;
        let timeouts = Timeouts::new(
            "node_timeout",
            self.options.timeout,
            self.options.lease,
            settings.longest_lease,
        )?;
        let heard = settings
            .queue
            .is_none_or(|timeout| timeout > timeouts.answer + settings.timing.retry);
        expect_duration(
            heard,
            "waiter_timeout",
            self.waiter_timeout,
            "expected more than node_timeout and retry",
        )?;
        let wakeups = Arc::new(Wakeups::default());
        let servers = self
            .nodes
            .iter()
            .map(|url| {
                Ok(Arc::new(Server::new(
                    url,
                    self.tls.as_ref(),
                    timeouts,
                    &wakeups,
                )?))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let labels: Vec<_> = servers.iter().map(|server| &server.label).collect();
        if labels.is_empty() || labels.iter().collect::<BTreeSet<_>>().len() < labels.len() {
            return Err(InvalidArgument::Nodes(format!("found {labels:?}")));
        }
        servers
            .iter()
            .for_each(|server| wakeups.attach(Arc::clone(server)));
        let alarm = Arc::new(Notify::new());
        let nodes = servers
            .into_iter()
            .map(|server| {
                Arc::new(Node::new(
                    server,
                    settings.longest_lease,
                    Arc::clone(&alarm),
                ))
            })
            .collect();
        Ok(Redlock::open(nodes, settings, alarm, wakeups))
    }

    fn settings(&self) -> Result<Settings, InvalidArgument> {
        let Self {
            keep_tokens,
            fair,
            waiter_timeout,
            ..
        } = *self;
        let timing = self.options.timing()?;
        let (ttl, retry) = (timing.ttl(), timing.retry);
        let longest_lease = self.longest_lease.unwrap_or(ttl);
        expect_duration(
            (ttl..=2 * LEASE_MAX).contains(&longest_lease),
            "longest_lease",
            longest_lease,
            "expected at least lease and lock_delay",
        )?;
        let keep_min = KEEP_MIN.max(2 * ttl);
        expect_duration(
            (keep_min..=1000 * LEASE_MAX).contains(&keep_tokens),
            "keep_tokens",
            keep_tokens,
            "expected an hour or two leases to 1000 days",
        )?;
        let waits = 3 * retry..=LEASE_MAX;
        expect_duration(
            !fair || waits.contains(&waiter_timeout),
            "waiter_timeout",
            waiter_timeout,
            "expected three retries to 24 hours",
        )?;
        Ok(Settings {
            timing,
            keep_tokens,
            longest_lease,
            queue: fair.then_some(waiter_timeout),
        })
    }
}
