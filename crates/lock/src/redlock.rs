//! The ballot Redlock: locks on a quorum of independent Redis servers, with tokens from the quorum
//! itself.
//!
//! | file | is |
//! |---|---|
//! | `builder` | every setting, and what is refused |
//! | `contender` | one acquisition: the ballot, and why tokens rise |
//! | `queue` | its place in the queue, in fair mode |
//! | `claim` | what an owner may have on the nodes, and the certainty that it goes away again |
//! | `held` | extending and releasing |
//! | `tokens` | the highest tokens that nodes have reported |
//! | `node` | one node, and whether it may vote |
//! | `durability` | whether a node keeps its votes across a restart |
//! | `fresh_start` | lets nodes vote that are all new, without waiting |
//! | `monitor` | watches the nodes, and admits those that may vote again |
//! | `clock` | notices when a node's wall clock jumps |
//! | `view` | what the nodes have of one lock, read only |

mod builder;
mod claim;
mod clock;
mod contender;
mod durability;
mod fresh_start;
mod held;
mod monitor;
mod node;
mod queue;
mod tokens;
mod view;

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{Mutex, Notify};

pub use self::{
    builder::RedlockBuilder,
    durability::Durability,
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
    Capabilities, FencingToken, Guard, Lock, LockError, Request,
    error::{Answer, Exclusion},
    redis_server::{Keys, Listener, Wakeups},
    retry,
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
    /// Two looks of one client would take each other for another client's.
    looking: Mutex<()>,
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
    /// Whether it votes without waiting after a restart.
    pub durability: Durability,
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
    /// Once the lock has been acquired, the tokens of names that the nodes do not know yet are
    /// above this one as well: a number near the last token uses up theirs too.
    fn observe(&self, name: &str, token: FencingToken) -> Result<(), LockError> {
        self.seen().note(&Keys::new(name)?, token);
        Ok(())
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
        retry::acquire(request.wait, &mut contender).await
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
            looking: Mutex::default(),
        });
        tokio::spawn(monitor::watch(Arc::downgrade(&inner)));
        Self(inner)
    }

    /// Looks at the nodes, and waits for those that are new to locks or have restarted, if there is
    /// no quorum without them. It does not wait for nodes that do not answer, and not for much
    /// longer than the longest lease.
    pub async fn wait_for_a_quorum(&self) {
        monitor::wait_for_a_quorum(&self.0).await;
    }

    /// Asks every node, and says whether its votes count.
    pub async fn status(&self) -> Vec<NodeStatus> {
        let probes = monitor::look(&self.0).await;
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
            timing,
            keep_tokens: keep,
            ..
        } = *self.settings();
        Ballot {
            keys: claim.keys().clone(),
            mode: claim.mode(),
            owner: Arc::clone(claim.owner()),
            token,
            ttl: timing.ttl(),
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
    let durability = match &probe {
        Ok(probe) => probe.durability.clone(),
        Err(_) if node.server.is_declared_durable => Durability::Refuted {
            reason: "the node did not answer".into(),
        },
        Err(_) => Durability::NotDeclared,
    };
    let standing = match (probe, node.exclusion()) {
        (Err(answer), _) => Standing::Unreachable(answer),
        (Ok(_), None) => Standing::Voting,
        // The next ballot that is put to it lets it vote.
        (Ok(Probe { kept: Some(_), .. }), Some(Exclusion::Forgot { .. })) => Standing::Voting,
        (Ok(_), Some(exclusion)) => Standing::Excluded(exclusion),
    };
    NodeStatus {
        node: node.label().to_owned(),
        standing,
        high_water,
        durability,
    }
}
