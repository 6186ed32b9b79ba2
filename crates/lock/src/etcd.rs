//! Locks in etcd: a lease for each holder, a queue in the order of create revisions, and the create revision as the token.
//!
//! Whoever wants a lock takes a lease and creates a key under the lock's prefix. The key with the lowest create revision has the lock; every
//! other one waits for the deletion of the key in front of it and of no other, so a release wakes one waiter. Revisions count all writes of the
//! cluster, so tokens rise from holder to holder. They begin anew only if the cluster itself does: restoring it from an older backup makes it
//! forget tokens that it has given.
//!
//! What a reader could get wrong: the server decides how long a lease is. It counts in whole seconds and grants none that is shorter than one
//! and a half elections take, so the guard goes by what was granted. And a waiter's lease runs while it waits: it is kept alive, or the
//! place in the queue is lost.
//!
//! | file | is |
//! |---|---|
//! | `builder` | every setting, and what is refused |
//! | `server` | what is asked of etcd, each with a timeout |
//! | `place` | a lease and a key: a place in the queue, and the certainty that it goes away again |
//! | `contender` | somebody who wants a lock |
//! | `held` | extending, releasing, and being told of a loss |

mod builder;
mod contender;
mod held;
mod place;
mod server;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

pub use self::builder::EtcdBuilder;
use self::{builder::Settings, contender::Contender, server::Server};
use crate::{
    Capabilities, Guard, Lock, LockError, Mode, Patience, Request, error::InvalidArgument,
    patience, segment,
};

/// Locks in etcd. Cheap to clone.
#[derive(Clone)]
pub struct EtcdLock {
    server: Arc<Server>,
    settings: Arc<Settings>,
}

#[async_trait]
impl Lock for EtcdLock {
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
                backend: "etcd",
                what: "shared mode",
            }
            .into());
        }
        let prefix = format!(
            "{}/{}/",
            self.settings.prefix,
            segment::of_name(request.name)?
        );
        let mut contender = Contender::new(self.clone(), request, prefix);
        patience::ask(request.patience, &mut contender).await
    }
}

impl EtcdLock {
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
}
