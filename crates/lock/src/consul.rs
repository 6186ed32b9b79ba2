//! Locks in Consul: a session for each holder, a key that it acquires, and the key's lock index as
//! the token.
//!
//! **Tested against a test double only**, which follows Consul's documentation and source
//! (`tests/it/contract/consul_double.rs`); no server was available. All requests go through
//! Consul's HTTP API, usually to the agent on the same machine.
//!
//! A key counts in its `LockIndex` how often it was acquired. A release leaves the key and the
//! index in place, so tokens rise from holder to holder. They start again if the key is deleted:
//! nothing here does that, and no other program should.
//!
//! Invariants and limits:
//!
//! * A session ends no earlier than its TTL, but up to twice as late, because Consul gives clients
//!   that grace. The lock of a vanished holder therefore stays closed for up to twice the lease,
//!   and for the lock-delay after that.
//! * The session has no health checks. With Consul's default check it would also end when gossip
//!   declares the node dead, before its TTL, and the guard's deadline would be wrong.
//! * Destroying a session that holds a key starts the lock-delay, as its expiry does. Only a
//!   release frees the key immediately, so the release comes first.
//! * Consul keeps no queue. After a release all waiters are notified, and the first acquire wins.
//!   Waiters try again only when the key has no holder: an attempt costs a write in the log of the
//!   cluster, waiting costs a connection.
//!
//! | file | content |
//! |---|---|
//! | `builder` | every setting and its validation |
//! | `agent` | the requests to Consul, each with a timeout |
//! | `session` | a session and the key that it acquired, and their removal |
//! | `contender` | acquires a lock and waits while it is held |
//! | `held` | extends, releases, and notices a loss |

mod agent;
mod builder;
mod contender;
mod held;
mod session;

use std::sync::Arc;

use async_trait::async_trait;

pub use self::builder::ConsulBuilder;
use self::{agent::Agent, builder::Settings, contender::Contender};
use crate::{
    backend::Lock,
    error::{Answer, LockError, Vote},
    guard::Guard,
    path_segment,
    request::{Capabilities, Request},
    retry,
};

/// Locks in Consul. Cheap to clone.
#[derive(Clone)]
pub struct ConsulLock {
    agent: Arc<Agent>,
    settings: Arc<Settings>,
}

#[async_trait]
impl Lock for ConsulLock {
    /// TTLs and lock-delays are counted by Go's timers and monotonic clock, on the leader.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fenced: true,
            fair: false,
            shared: false,
            reentrant: false,
            push_loss: true,
            lock_delay: true,
            clock_free: true,
        }
    }

    async fn request(&self, request: Request<'_>) -> Result<Guard, LockError> {
        request.require_exclusive("Consul")?;
        let key = format!(
            "{}/{}",
            self.settings.prefix,
            path_segment::encode(request.name)?
        );
        let mut contender = Contender::new(self.clone(), request.name.to_owned(), key.into());
        retry::acquire(request.wait, &mut contender).await
    }
}

impl ConsulLock {
    /// The datacenter has one vote.
    fn votes(&self, answer: Answer) -> Vec<Vote> {
        Vote::single(&self.agent.label, answer)
    }
}
