//! Locks in Consul: a session for each holder, a key that it acquires, and the key's lock index as the token.
//!
//! **Tested against a double only**, which follows Consul's documentation and source (`tests/it/contract/consul_double.rs`); no server was at
//! hand. Everything goes through Consul's HTTP API, usually to the agent on the same machine.
//!
//! A key counts in its `LockIndex` how often it has been acquired. A release leaves the key and the index where they are, so tokens rise from
//! holder to holder. They begin anew if somebody deletes the key: nothing here does, and nobody else should.
//!
//! What a reader could get wrong:
//!
//! * A session ends no earlier than its TTL says, but up to as much later, because Consul gives clients that grace. A holder that has vanished
//!   is outlived by twice its lease, and by the lock-delay after that.
//! * The session has no health checks. With Consul's default one it would also end when gossip takes the node for dead, before
//!   its TTL, and the guard's deadline would not be true.
//! * A session that is destroyed while it has a key starts the lock-delay like one that expires. Only a release frees at once, so that comes first.
//! * Consul keeps no queue. Whoever acquires first after a release has the lock, and all who wait are told of it. They ask again only when
//!   the key has no holder: asking costs a write in the log of the cluster, waiting costs a connection.
//!
//! | file | is |
//! |---|---|
//! | `builder` | every setting, and what is refused |
//! | `agent` | what is asked of Consul, each with a timeout |
//! | `claim` | a session and what it has acquired, and the certainty that it goes away again |
//! | `contender` | somebody who wants a lock |
//! | `held` | extending, releasing, and being told of a loss |

mod agent;
mod builder;
mod claim;
mod contender;
mod held;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

pub use self::builder::ConsulBuilder;
use self::{agent::Agent, builder::Settings, contender::Contender};
use crate::{
    Capabilities, Guard, Lock, LockError, Mode, Patience, Request, error::InvalidArgument,
    patience, segment,
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
        if request.mode == Mode::Shared {
            return Err(InvalidArgument::Unsupported {
                backend: "Consul",
                what: "shared mode",
            }
            .into());
        }
        let key = format!(
            "{}/{}",
            self.settings.prefix,
            segment::of_name(request.name)?
        );
        let mut contender = Contender::new(self.clone(), request.name.to_owned(), key.into());
        patience::ask(request.patience, &mut contender).await
    }
}

impl ConsulLock {
    /// Asks once. (The same as [`Lock::try_acquire`], so that nothing but this type need be imported.)
    ///
    /// # Errors
    ///
    /// See [`LockError`].
    pub async fn try_acquire(&self, name: &str) -> Result<Guard, LockError> {
        self.request(Request::new(name).patience(Patience::None))
            .await
    }

    /// Waits for as long as somebody else has the lock. Cancelling it leaves nothing behind.
    ///
    /// # Errors
    ///
    /// If Consul does not answer: see [`LockError`].
    pub async fn acquire(&self, name: &str) -> Result<Guard, LockError> {
        self.request(Request::new(name)).await
    }

    /// Waits for so long, also for a Consul that does not answer, and then says what stood in the way last.
    ///
    /// # Errors
    ///
    /// See [`LockError`].
    pub async fn acquire_within(&self, name: &str, patience: Duration) -> Result<Guard, LockError> {
        self.request(Request::new(name).patience(Patience::For(patience)))
            .await
    }
}
