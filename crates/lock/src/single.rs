//! Locks on one Redis server: `SET NX PX` with a counter in the same script, and a re-entrant
//! variant.
//!
//! There is no second server. If this one restarts without its data, or a replica without the last
//! writes takes its place, a lock may be given twice and tokens may start again. The row keeps its
//! fence: `observe` it. See `Redlock` for locks that survive the loss of a server.

mod acquisition;
mod builder;
mod contender;

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use async_trait::async_trait;

pub use self::builder::RedisLockBuilder;
use self::contender::Contender;
use crate::{
    backend::Lock,
    error::{Answer, LockError, Vote},
    guard::Guard,
    options::Timing,
    owner::unique,
    redis_server::{Keys, Server, Wakeups},
    request::{Capabilities, Request},
    retry,
    token::FencingToken,
};

/// Locks on one Redis server. Cheap to clone.
#[derive(Clone)]
pub struct RedisLock {
    inner: Arc<Inner>,
    /// Owner of a re-entrant handle.
    owner: Option<Arc<str>>,
}

struct Inner {
    server: Arc<Server>,
    timing: Timing,
    wakeups: Arc<Wakeups>,
    /// The next token is above this one.
    floor: AtomicI64,
}

impl RedisLock {
    fn new(server: Arc<Server>, timing: Timing, wakeups: Arc<Wakeups>) -> Self {
        Self {
            inner: Arc::new(Inner {
                server,
                timing,
                wakeups,
                floor: AtomicI64::new(0),
            }),
            owner: None,
        }
    }

    /// A handle whose locks may be acquired again by this handle and its clones, and by no other. A
    /// lock is free when all its guards are gone. The server stores the hash that Redisson uses, so
    /// Redisson's locks and these exclude each other.
    pub fn reentrant(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            owner: Some(unique().into()),
        }
    }

    /// The server has one vote.
    fn votes(&self, answer: Answer) -> Vec<Vote> {
        Vote::single(&self.inner.server.label, answer)
    }
}

#[async_trait]
impl Lock for RedisLock {
    fn capabilities(&self) -> Capabilities {
        let reentrant = self.owner.is_some();
        Capabilities {
            fenced: true,
            fair: false,
            shared: false,
            reentrant,
            push_loss: false,
            lock_delay: true,
            clock_free: false,
        }
    }

    /// The server has one counter for all names, so the token counts for every name.
    fn observe(&self, _name: &str, token: FencingToken) -> Result<(), LockError> {
        self.inner.floor.fetch_max(token.get(), Ordering::Relaxed);
        Ok(())
    }

    async fn request(&self, request: Request<'_>) -> Result<Guard, LockError> {
        let keys = Keys::new(request.name)?;
        request.require_exclusive("redis")?;
        retry::acquire(request.wait, &mut Contender::new(self.clone(), keys)).await
    }
}
