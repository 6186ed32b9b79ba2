//! A place in the queue for a lock, in fair mode.
//!
//! It is Lamport's bakery on a quorum. A ticket is one above the highest that a quorum knows, and
//! is then written to all nodes. A client that comes after it is on a quorum reads it
//! from a node that the two quorums share, so its ticket is higher, and it waits on that node. It
//! is our turn when no waiter is in front on a quorum of nodes. Who has the same ticket came at the
//! same time; its name decides.
//!
//! What a reader could get wrong: the queue orders those who ask, and nothing rests on it. Two
//! waiters that both have their turn meet at the ballot. A waiter keeps its place by asking again;
//! one that does not counts as dead by the clock of each node.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, task::JoinSet, time::sleep};

use super::{
    claim::{IfLow, Nodes},
    node::Node,
};
use crate::{LockError, error::Answer, owner::unique, redis_server::Keys};

const LEAVE_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Place {
    nodes: Nodes,
    keys: Keys,
    waiter: Arc<str>,
    timeout: Duration,
    ticket: Option<u64>,
    requests: JoinSet<()>,
}

impl Place {
    pub(crate) fn new(nodes: Nodes, keys: Keys, timeout: Duration) -> Self {
        Self {
            nodes,
            keys,
            waiter: unique().into(),
            timeout,
            ticket: None,
            requests: JoinSet::new(),
        }
    }

    /// Takes or keeps the place, and says whether it is our turn.
    pub(crate) async fn turn(&mut self) -> Result<(), LockError> {
        let ticket = match self.ticket {
            Some(ticket) => ticket,
            None => self.last().await? + 1,
        };
        self.ticket = Some(ticket);
        self.queue(ticket).await.map(drop)
    }

    /// The last ticket that a quorum knows.
    async fn last(&mut self) -> Result<u64, LockError> {
        self.queue(0).await
    }

    async fn queue(&mut self, ticket: u64) -> Result<u64, LockError> {
        self.requests.shutdown().await;
        let last = Arc::new(AtomicU64::new(0));
        let ask = |node: Arc<Node>| {
            let (keys, waiter, timeout, last) = (
                self.keys.clone(),
                Arc::clone(&self.waiter),
                self.timeout,
                Arc::clone(&last),
            );
            async move {
                let (answer, ticket) = node.queue(&keys, &waiter, ticket, timeout).await;
                last.fetch_max(ticket, Ordering::SeqCst);
                answer
            }
        };
        let answers = self.nodes.ask(&mut self.requests, IfLow::Over, ask).await;
        if self.nodes.agreed(&answers) {
            return Ok(last.load(Ordering::SeqCst));
        }
        let votes = self.nodes.votes(&answers);
        let failed = self.nodes.blocked_by(&answers, Answer::is_failure);
        Err(if failed {
            LockError::NoQuorum { causes: votes }
        } else {
            LockError::Held { votes }
        })
    }
}

impl Drop for Place {
    /// In a separate task: the waiters behind us need not wait until we count as dead.
    fn drop(&mut self) {
        let (Some(_), Ok(runtime)) = (self.ticket, Handle::try_current()) else {
            return;
        };
        let (nodes, keys, waiter) = (
            Arc::clone(&self.nodes.all),
            self.keys.clone(),
            Arc::clone(&self.waiter),
        );
        let mut requests = std::mem::take(&mut self.requests);
        let until = Instant::now() + self.timeout;
        runtime.spawn(async move {
            requests.shutdown().await;
            for node in nodes.iter() {
                let (node, keys, waiter) = (Arc::clone(node), keys.clone(), Arc::clone(&waiter));
                tokio::spawn(async move {
                    while node.leave(&keys, &waiter).await.is_failure() && Instant::now() < until {
                        sleep(LEAVE_PAUSE).await;
                    }
                });
            }
        });
    }
}
