//! Locks in ZooKeeper: ephemeral sequential nodes, a watch on the node ahead, and the czxid as the
//! token.
//!
//! The [queue](crate::ephemeral_queue) consists of nodes below the node of the lock. The server
//! numbers them and removes them when their session ends. The czxid is the transaction that created
//! the node. The ensemble counts all of its transactions, so tokens rise from holder to holder,
//! also after the node of the lock was removed and its numbers started again.
//!
//! Invariants and limits:
//!
//! * A session belongs to a [`ZooKeeperLock`], not to a holder, and its client keeps it alive. A
//!   guard that is not extended is lost at its deadline, but other owners get the lock only when it
//!   is released or dropped, or when the session ends.
//! * A read may be answered by a server that the ensemble has given up. An extension is therefore a
//!   transaction (one that changes nothing): its success proves that the leader knows our session
//!   and our node.
//! * A server reports only every half tick to its leader which sessions are alive. If the server
//!   dies in between, the leader counts from the contact before. That is why the guard's deadline
//!   is half a tick before the end of the session.
//! * A create whose connection was lost may have been carried out. The node has a unique name, as
//!   Curator's has, and is looked up before another one is created.
//! * The server numbers the nodes below one node with 32 bits. After two thousand million
//!   acquisitions of one name, without a pause of a minute in which the server would have removed
//!   the empty node, the order of its waiters breaks.
//!
//! | file | content |
//! |---|---|
//! | `builder` | every setting and its validation |
//! | `node` | a node: one position in the queue, and its removal |
//! | `session` | the session, opened again when it has ended |

mod builder;
mod node;
mod session;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

pub use self::builder::ZooKeeperBuilder;
use self::{node::ZooKeeperNode, session::Sessions};
use crate::{
    backend::Lock,
    ephemeral_queue::{self, Service},
    error::{Answer, LockError},
    guard::Guard,
    options::Timing,
    request::{Capabilities, Request},
};

/// Locks in ZooKeeper. Cheap to clone; its clones share a session.
#[derive(Clone)]
pub struct ZooKeeperLock(Arc<ZooKeeperService>);

struct ZooKeeperService {
    sessions: Sessions,
    root: String,
    timing: Timing,
    /// Longest delay until a server reports a sign of life to its leader.
    unreported: Duration,
}

#[async_trait]
impl Lock for ZooKeeperLock {
    fn capabilities(&self) -> Capabilities {
        ephemeral_queue::CAPABILITIES
    }

    async fn request(&self, request: Request<'_>) -> Result<Guard, LockError> {
        ephemeral_queue::acquire(&self.0, request).await
    }
}

impl Service for ZooKeeperService {
    const BACKEND: &'static str = "ZooKeeper";

    type Node = ZooKeeperNode;

    fn label(&self) -> &str {
        self.sessions.servers()
    }

    fn root(&self) -> &str {
        &self.root
    }

    fn timing(&self) -> &Timing {
        &self.timing
    }

    async fn node(&self, queue: &str) -> Result<ZooKeeperNode, Answer> {
        let session = self.sessions.current().await?;
        Ok(ZooKeeperNode::new(session, queue, self.unreported))
    }
}
