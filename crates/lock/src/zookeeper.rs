//! Locks in ZooKeeper: ephemeral sequential nodes, a watch on the one in front, and the czxid as the token.
//!
//! Whoever wants a lock creates a node below the node of the lock; the server numbers it and removes it when its session ends. The lowest
//! number has the lock, and every other node waits for the one in front of it and for no other, so a release wakes one waiter. The czxid
//! is the transaction that created the node: the ensemble counts all of its transactions, so tokens rise from holder to holder, also after the
//! node of the lock has been removed and its numbers have begun anew.
//!
//! What a reader could get wrong:
//!
//! * A session belongs to a [`ZooKeeperLock`] and not to a holder, and its client keeps it alive by itself. A guard that nobody extends is
//!   lost at its deadline all the same, but others get the lock only when it is released or dropped, or when the session ends.
//! * A read may be answered by a server that the others have given up. So an extension is a transaction (one that changes nothing): that it
//!   succeeds proves that the leader knows our session and our node.
//! * A server tells its leader only every half tick which sessions it has heard from. If it dies in between, the leader counts from the contact
//!   before. That is why the guard's deadline is half a tick before the end of the session.
//! * A create whose connection was lost may have been carried out. The node has a name that nobody else could have given it, as Curator does,
//!   and is looked for before another one is created.
//! * The server numbers the nodes below one node with 32 bits. After two thousand million acquisitions of one name, without a minute's pause in
//!   which its empty node would have been removed, the order of its waiters breaks.
//!
//! | file | is |
//! |---|---|
//! | `builder` | every setting, and what is refused |
//! | `session` | the session, made anew when it has ended |
//! | `place` | a node: a place in the queue, and the certainty that it goes away again |
//! | `contender` | somebody who wants a lock |
//! | `held` | extending, releasing, and being told of a loss |

mod builder;
mod contender;
mod held;
mod place;
mod session;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

pub use self::builder::ZooKeeperBuilder;
use self::{builder::Settings, contender::Contender, session::Sessions};
use crate::{
    Capabilities, Guard, Lock, LockError, Mode, Patience, Request,
    error::{Answer, InvalidArgument, Vote},
    patience, segment,
};

/// Locks in ZooKeeper. Cheap to clone; its clones share a session.
#[derive(Clone)]
pub struct ZooKeeperLock(Arc<Inner>);

struct Inner {
    sessions: Sessions,
    settings: Settings,
}

#[async_trait]
impl Lock for ZooKeeperLock {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fenced: true,
            fair: true,
            shared: false,
            reentrant: false,
            push_loss: true,
            lock_delay: false,
            clock_free: true,
        }
    }

    async fn request(&self, request: Request<'_>) -> Result<Guard, LockError> {
        if request.mode == Mode::Shared {
            return Err(InvalidArgument::Unsupported {
                backend: "ZooKeeper",
                what: "shared mode",
            }
            .into());
        }
        let parent = format!(
            "{}/{}",
            self.0.settings.root,
            segment::of_name(request.name)?
        );
        let mut contender = Contender::new(self.clone(), request, parent);
        patience::ask(request.patience, &mut contender).await
    }
}

impl ZooKeeperLock {
    /// Asks once. (The same as [`Lock::try_acquire`], so that nothing but this type need be imported.)
    ///
    /// # Errors
    ///
    /// See [`LockError`].
    pub async fn try_acquire(&self, name: &str) -> Result<Guard, LockError> {
        self.request(Request::new(name).patience(Patience::None))
            .await
    }

    /// Waits in the queue for as long as somebody else has the lock. Cancelling it leaves nothing behind.
    ///
    /// # Errors
    ///
    /// If the servers do not answer: see [`LockError`].
    pub async fn acquire(&self, name: &str) -> Result<Guard, LockError> {
        self.request(Request::new(name)).await
    }

    /// Waits in the queue for so long, also for servers that do not answer, and then says what stood in the way last.
    ///
    /// # Errors
    ///
    /// See [`LockError`].
    pub async fn acquire_within(&self, name: &str, patience: Duration) -> Result<Guard, LockError> {
        self.request(Request::new(name).patience(Patience::For(patience)))
            .await
    }

    /// There is one vote, that of the ensemble.
    fn votes(&self, answer: Answer) -> Vec<Vote> {
        vec![Vote {
            node: self.0.sessions.servers().to_owned(),
            answer,
        }]
    }
}
