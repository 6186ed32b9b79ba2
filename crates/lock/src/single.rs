//! Locks that one Redis server alone keeps: `SET NX PX` with a counter in the same script, and a variant that its owner may enter again.
//!
//! What a reader could get wrong: this server is all there is. If it restarts without its data, or a replica takes its place that did not
//! have the last writes, a lock may be given twice and tokens may begin anew. The row knows better: `observe` its fence. For more, see
//! `Redlock`.

mod builder;
mod contender;
mod entry;

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use async_trait::async_trait;

pub use self::builder::RedisLockBuilder;
use self::{builder::Settings, contender::Contender};
use crate::{
    Capabilities, FencingToken, Guard, InvalidArgument, Lock, LockError, Mode, Request,
    owner::unique,
    patience,
    redis_server::{Keys, Server, Wakeups},
};

/// Locks on one Redis server. Cheap to clone.
#[derive(Clone)]
pub struct RedisLock {
    inner: Arc<Inner>,
    /// Who may enter again, if anybody may.
    owner: Option<Arc<str>>,
}

struct Inner {
    server: Arc<Server>,
    settings: Settings,
    wakeups: Arc<Wakeups>,
    /// The next token is above it.
    floor: AtomicI64,
}

impl RedisLock {
    fn new(server: Arc<Server>, settings: Settings, wakeups: Arc<Wakeups>) -> Self {
        Self {
            inner: Arc::new(Inner {
                server,
                settings,
                wakeups,
                floor: AtomicI64::new(0),
            }),
            owner: None,
        }
    }

    /// A handle whose locks may be acquired again by this handle and its clones, and by nobody else. A lock is free when all guards of it are
    /// gone. On the server it is the hash that Redisson uses, so Redisson's locks and these exclude each other.
    pub fn reentrant(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            owner: Some(unique().into()),
        }
    }

    /// Makes every later token be above one that is known from elsewhere, usually the fence of a row that the lock protects.
    pub fn observe(&self, token: FencingToken) {
        self.inner.floor.fetch_max(token.get(), Ordering::Relaxed);
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

    fn note_token(&self, _name: &str, token: FencingToken) {
        self.observe(token);
    }

    async fn request(&self, request: Request<'_>) -> Result<Guard, LockError> {
        let keys = Keys::new(request.name)?;
        if request.mode == Mode::Shared {
            return Err(InvalidArgument::Unsupported {
                backend: "redis",
                what: "shared mode",
            }
            .into());
        }
        patience::ask(request.patience, &mut Contender::new(self.clone(), keys)).await
    }
}
