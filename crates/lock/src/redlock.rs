//! The ballot Redlock: locks on a quorum of independent Redis servers, with tokens from the quorum itself.
//!
//! | file | is |
//! |---|---|
//! | `builder` | every setting, and what is refused |
//! | `contender` | somebody who wants a lock: the ballot, and why tokens rise |
//! | `queue` | its place among others, in fair mode |
//! | `claim` | what an owner may have on the nodes, and the certainty that it goes away again |
//! | `held` | extending and releasing |
//! | `tokens` | the tokens that we have been told of |
//! | `node` | one node, and whether it may vote |
//! | `monitor` | watches the nodes, and lets those vote again that may have forgotten |
//! | `clock` | notices when a node's wall clock jumps |
//! | `view` | what the nodes have of one lock, for whoever looks from outside |

mod builder;
mod claim;
mod clock;
mod contender;
mod held;
mod monitor;
mod node;
mod queue;
mod tokens;
mod view;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::sync::Notify;

pub use self::{
    builder::RedlockBuilder,
    view::{Holder, LockView, NodeView, Verdict},
};
use self::{
    builder::Settings,
    claim::{Claim, Nodes},
    contender::Contender,
    node::{Ballot, Node, Probe},
    tokens::Seen,
};
use crate::{
    Capabilities, FencingToken, Guard, Lock, LockError, Patience, Request,
    error::{Answer, Exclusion},
    patience,
    redis_server::{Keys, Listener, Wakeups},
};

/// Locks on a quorum of independent Redis servers. Cheap to clone.
#[derive(Clone)]
pub struct Redlock(Arc<Inner>);

pub(crate) struct Inner {
    nodes: Nodes,
    settings: Settings,
    seen: Arc<Seen>,
    wakeups: Arc<Wakeups>,
    /// Wakes the monitor.
    alarm: Arc<Notify>,
}

/// What one node is like.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeStatus {
    /// `HOST:PORT`.
    pub node: String,
    /// Whether its votes count, and if not, why.
    pub standing: Standing,
    /// The highest token that it remembers, of any name.
    pub high_water: Option<FencingToken>,
}

/// Whether a node's votes count.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Standing {
    /// They do.
    Voting,
    /// They do not.
    Excluded(Exclusion),
    /// It did not answer.
    Unreachable(Answer),
}

#[async_trait]
impl Lock for Redlock {
    fn note_token(&self, name: &str, token: FencingToken) {
        if let Err(error) = self.observe(name, token) {
            tracing::warn!(name, %error, "a token was not noted");
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fenced: true,
            fair: self.settings().queue.is_some(),
            shared: true,
            reentrant: false,
            push_loss: false,
            lock_delay: true,
            clock_free: false,
        }
    }

    async fn request(&self, request: Request<'_>) -> Result<Guard, LockError> {
        let mut contender = Contender::new(self.clone(), Keys::new(request.name)?, request.mode);
        patience::ask(request.patience, &mut contender).await
    }
}

impl Redlock {
    /// The first look at the nodes is on its way when this returns.
    fn open(
        nodes: Vec<Arc<Node>>,
        settings: Settings,
        alarm: Arc<Notify>,
        wakeups: Arc<Wakeups>,
    ) -> Self {
        let nodes = Nodes::new(nodes);
        alarm.notify_one();
        let inner = Arc::new(Inner {
            nodes,
            settings,
            seen: Arc::default(),
            wakeups,
            alarm,
        });
        tokio::spawn(monitor::watch(Arc::downgrade(&inner)));
        Self(inner)
    }

    /// Looks at the nodes, and waits for those that are new to locks or have restarted, if there is no quorum without them. It does not wait
    /// for nodes that do not answer, and not for much longer than the longest lease.
    pub async fn wait_for_a_quorum(&self) {
        monitor::wait_for_a_quorum(self.nodes(), self.settings().longest_lease, &self.0.seen).await;
    }

    /// Asks once. (The same as [`Lock::try_acquire`], so that nothing but this type need be imported.)
    ///
    /// # Errors
    ///
    /// See [`LockError`]. Whatever single nodes granted is given back in the background.
    pub async fn try_acquire(&self, name: &str) -> Result<Guard, LockError> {
        self.request(Request::new(name).patience(Patience::None))
            .await
    }

    /// Waits for as long as somebody else has the lock. Cancelling it leaves nothing behind.
    ///
    /// # Errors
    ///
    /// If too few nodes can vote: see [`LockError`].
    pub async fn acquire(&self, name: &str) -> Result<Guard, LockError> {
        self.request(Request::new(name)).await
    }

    /// Waits for so long, also for nodes that can vote, and then says what stood in the way last.
    ///
    /// # Errors
    ///
    /// See [`LockError`].
    pub async fn acquire_within(&self, name: &str, patience: Duration) -> Result<Guard, LockError> {
        self.request(Request::new(name).patience(Patience::For(patience)))
            .await
    }

    /// Makes every later token of this lock be above one that is known from elsewhere, usually the fence of a row that the lock protects.
    /// Once it has been acquired, so are those of names that the nodes do not know yet: a number near the last token uses up theirs as well.
    ///
    /// # Errors
    ///
    /// For a name that no lock may have.
    pub fn observe(&self, name: &str, token: FencingToken) -> Result<(), LockError> {
        self.seen().note(&Keys::new(name)?, token);
        Ok(())
    }

    /// Asks every node, and says whether its votes count.
    pub async fn status(&self) -> Vec<NodeStatus> {
        let probes = monitor::look(self.nodes(), &self.0.seen).await;
        self.nodes()
            .all
            .iter()
            .zip(probes)
            .map(|(node, probe)| status(node, probe))
            .collect()
    }

    fn nodes(&self) -> &Nodes {
        &self.0.nodes
    }

    fn settings(&self) -> &Settings {
        &self.0.settings
    }

    fn ballot(&self, claim: &Claim, token: FencingToken) -> Ballot {
        let Settings {
            ttl,
            keep_tokens: keep,
            ..
        } = *self.settings();
        Ballot {
            keys: claim.keys().clone(),
            mode: claim.mode(),
            owner: Arc::clone(claim.owner()),
            token,
            ttl,
            keep,
        }
    }

    fn listen(&self, keys: &Keys) -> Listener {
        self.0.wakeups.listen(keys.released())
    }

    fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.0.seen)
    }
}

fn status(node: &Node, probe: Result<Probe, Answer>) -> NodeStatus {
    let high_water = probe
        .as_ref()
        .ok()
        .and_then(|probe| FencingToken::new(probe.mark));
    let standing = match (probe, node.exclusion()) {
        (Err(answer), _) => Standing::Unreachable(answer),
        (Ok(_), None) => Standing::Voting,
        (Ok(_), Some(exclusion)) => Standing::Excluded(exclusion),
    };
    NodeStatus {
        node: node.label().to_owned(),
        standing,
        high_water,
    }
}
