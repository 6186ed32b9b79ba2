//! Every setting of a [`Redlock`], with its default, and what is refused.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::sync::Notify;

use super::{Redlock, node::Node};
use crate::{
    error::{InvalidArgument, expect},
    lease::{LEASE_MAX, Lease, check_lock_delay, check_retry},
    redis_server::{Server, Timeouts, Wakeups},
};

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
    fair: bool,
    waiter_timeout: Duration,
}

/// The settings, checked and complete.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub lease: Lease,
    /// Of the key on a node: the lease and the lock-delay.
    pub ttl: Duration,
    pub retry: Duration,
    pub keep_tokens: Duration,
    pub longest_lease: Duration,
    /// After which a waiter is taken for dead; `None` if nobody queues.
    pub queue: Option<Duration>,
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
            fair: false,
            waiter_timeout: Duration::from_secs(1),
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

    /// Serves waiters in the order in which they came, across processes. It costs two round trips more for an acquisition, and it is kept only
    /// among those who set it. Default: off; whoever asks first when the lock is given back gets it.
    pub fn fair(mut self, fair: bool) -> Self {
        self.fair = fair;
        self
    }

    /// In fair mode, how long a waiter that has vanished may keep those behind it waiting. Default: 1 second.
    pub fn waiter_timeout(mut self, timeout: Duration) -> Self {
        self.waiter_timeout = timeout;
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
        let redlock = self.build_without_waiting()?;
        redlock.wait_for_a_quorum().await;
        Ok(redlock)
    }

    /// Connects to the nodes in the background, for whoever wants to look ([`Redlock::view`]) or to wait in a way of its own
    /// ([`Redlock::wait_for_a_quorum`]). Nodes that have not been looked at do not vote.
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
            self.node_timeout,
            self.lease,
            settings.longest_lease,
        )?;
        let heard = settings
            .queue
            .is_none_or(|timeout| timeout > timeouts.answer + settings.retry);
        expect(
            heard,
            "waiter_timeout",
            self.waiter_timeout,
            "expected more than node_timeout and retry",
        )?;
        let wakeups = Arc::new(Wakeups::default());
        let servers = self
            .nodes
            .iter()
            .map(|url| Ok(Arc::new(Server::new(url, timeouts, &wakeups)?)))
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
            lock_delay,
            retry,
            keep_tokens,
            fair,
            waiter_timeout,
            ..
        } = *self;
        let lease = Lease::new(self.lease, self.min_validity)?;
        check_lock_delay(lock_delay)?;
        let ttl = lease.length + lock_delay;
        let longest_lease = self.longest_lease.unwrap_or(ttl);
        expect(
            (ttl..=2 * LEASE_MAX).contains(&longest_lease),
            "longest_lease",
            longest_lease,
            "expected at least lease and lock_delay",
        )?;
        check_retry(retry)?;
        let keep_min = KEEP_MIN.max(2 * ttl);
        expect(
            (keep_min..=1000 * LEASE_MAX).contains(&keep_tokens),
            "keep_tokens",
            keep_tokens,
            "expected an hour or two leases to 1000 days",
        )?;
        let waits = 3 * retry..=LEASE_MAX;
        expect(
            !fair || waits.contains(&waiter_timeout),
            "waiter_timeout",
            waiter_timeout,
            "expected three retries to 24 hours",
        )?;
        Ok(Settings {
            lease,
            ttl,
            retry,
            keep_tokens,
            longest_lease,
            queue: fair.then_some(waiter_timeout),
        })
    }
}
