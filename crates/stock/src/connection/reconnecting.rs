//! A connection to one address that many callers share, and that no failure breaks for good.
//!
//! The library's manager opens a connection anew when it breaks. There are states that it does not
//! leave by itself (redis 1.8.1):
//!
//! * The server refused the login, or what follows it, while the manager reconnected. The manager
//!   keeps the failed attempt, and every later command gets its error, also when the server accepts
//!   the login again (redis-rs issue #984).
//! * The address leads to another server now, and the old one stays up as a replica. It replies, so
//!   nothing breaks, and it refuses every write.
//! * The address leads to another server, and the old one hangs. Nothing breaks either.
//!
//! So the replies decide ([`Worth`]), and not the state of the socket. A connection that is of no use
//! is replaced: the name is resolved and the user logs in anew. The old connection stays until the
//! new one leads to a master. When one connection has found a new server, all others to the same
//! address follow it, also those that only read: a replica would answer them with old data.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use redis::{
    Client, Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value,
    aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig},
};
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{server, timeouts::TimeoutRun};
use crate::refusal::{Worth, worth_of_reply};

/// Shortest time between two attempts to replace a connection, each of a few logins. A server that
/// refuses a password must not get one for each order.
const REPLACE_PAUSE: Duration = Duration::from_millis(250);

/// A server's address, and what all connections to it have in common.
pub(crate) struct Target {
    pub(super) client: Client,
    /// Cancelled when the address has turned out to lead to another server. Connections that were
    /// opened before are of no use then.
    stay: Mutex<CancellationToken>,
}

impl Target {
    pub(super) fn new(client: Client) -> Arc<Self> {
        let stay = Mutex::default();
        Arc::new(Self { client, stay })
    }

    /// A token that is cancelled when the address leads to another server.
    pub(super) fn stay(&self) -> CancellationToken {
        self.locked_stay().clone()
    }

    /// Has every other connection follow one that has found a new server, unless another has led
    /// them there. Returns the new stay.
    fn leave(&self, left: &CancellationToken) -> CancellationToken {
        let mut stay = self.locked_stay();
        if !left.is_cancelled() {
            *stay = CancellationToken::new();
            left.cancel();
        }
        stay.clone()
    }

    fn locked_stay(&self) -> MutexGuard<'_, CancellationToken> {
        self.stay.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection to one address that many callers share.
#[derive(Clone)]
pub struct Reconnecting(Arc<Inner>);

struct Inner {
    target: Arc<Target>,
    config: ConnectionManagerConfig,
    /// A connection is driven by the runtime that opened it.
    runtime: Handle,
    open: ArcSwap<Open>,
    timeouts: TimeoutRun,
    replacing: AtomicBool,
    /// When the last attempt to replace it began.
    attempted: Mutex<Option<Instant>>,
    /// Ends the task that follows the address.
    _dropped: DropGuard,
}

/// A connection, and the stay of the address that it belongs to.
struct Open {
    manager: ConnectionManager,
    stay: CancellationToken,
}

/// Why a connection is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// It cannot be logged in, or its user has lost its rights.
    Refused,
    WrongServer,
    /// It has only timed out for a while.
    Unresponsive,
    /// Another connection has found the server that the address leads to now.
    Moved,
}

impl Reconnecting {
    /// Connects to the server that the client's address leads to. The calling runtime drives the
    /// connection.
    pub async fn open(client: Client, config: ConnectionManagerConfig) -> RedisResult<Self> {
        Self::open_at(&Target::new(client), config).await
    }

    pub(super) async fn open_at(
        target: &Arc<Target>,
        config: ConnectionManagerConfig,
    ) -> RedisResult<Self> {
        let stay = target.stay();
        let connecting = target
            .client
            .get_connection_manager_with_config(config.clone());
        let manager = connecting.await?;
        let dropped = CancellationToken::new();
        let connection = Self(Arc::new(Inner {
            target: Arc::clone(target),
            config,
            runtime: Handle::current(),
            open: ArcSwap::from_pointee(Open { manager, stay }),
            timeouts: TimeoutRun::default(),
            replacing: AtomicBool::default(),
            attempted: Mutex::default(),
            _dropped: dropped.clone().drop_guard(),
        }));
        let follow = follow(Arc::downgrade(&connection.0));
        tokio::spawn(async move { dropped.run_until_cancelled(follow).await });
        Ok(connection)
    }

    pub(super) async fn command(&self, cmd: &Cmd) -> RedisResult<Value> {
        let mut manager = self.0.open.load().manager.clone();
        let result = manager.req_packed_command(cmd).await;
        self.note(&result, worth_of_reply);
        result
    }

    pub(super) async fn commands(
        &self,
        pipeline: &Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let mut manager = self.0.open.load().manager.clone();
        let result = manager.req_packed_commands(pipeline, offset, count).await;
        self.note(&result, |replies| {
            let mut worths = replies.iter().map(worth_of_reply);
            worths
                .find(|worth| *worth != Worth::Good)
                .unwrap_or(Worth::Good)
        });
        result
    }

    pub(super) fn db(&self) -> i64 {
        self.0.open.load().manager.get_db()
    }

    fn note<T>(&self, result: &RedisResult<T>, worth: impl Fn(&T) -> Worth) {
        let timed_out = result.as_ref().is_err_and(RedisError::is_timeout);
        if self.0.timeouts.note(timed_out, Instant::now()) {
            self.replace(Reason::Unresponsive);
        }
        match result.as_ref().map(worth) {
            Ok(Worth::Good) => {}
            Ok(Worth::WrongServer) => self.replace(Reason::WrongServer),
            Ok(Worth::LogInAnew) => self.replace(Reason::Refused),
            // The refusal of a command is a reply. An error of another kind than I/O, after which the
            // manager reconnects by itself, is that of the attempt to connect.
            Err(error) if error.kind() != ErrorKind::Io => self.replace(Reason::Refused),
            Err(_) => {}
        }
    }

    /// Begins to replace the connection, if nobody does so already.
    fn replace(&self, reason: Reason) {
        if self.0.replacing.swap(true, Ordering::AcqRel) {
            return;
        }
        if !self.0.may_attempt(Instant::now()) {
            return self.0.replacing.store(false, Ordering::Release);
        }
        let inner = Arc::clone(&self.0);
        self.0.runtime.spawn(async move {
            match inner.connect_anew(reason).await {
                Ok(()) => {
                    metrics::counter!("stockade_redis_clients_replaced_total").increment(1);
                    tracing::warn!(?reason, "connection to Redis replaced");
                }
                Err(error) => tracing::debug!(%error, ?reason, "no better connection to Redis yet"),
            }
            inner.replacing.store(false, Ordering::Release);
        });
    }
}

/// Has a connection follow the others to the server that the address leads to, without waiting for
/// its next use: the first reply would come from the old server.
async fn follow(inner: Weak<Inner>) {
    loop {
        let Some(stay) = inner.upgrade().map(|inner| inner.open.load().stay.clone()) else {
            return;
        };
        stay.cancelled().await;
        if let Some(inner) = inner.upgrade() {
            Reconnecting(inner).replace(Reason::Moved);
        }
        tokio::time::sleep(REPLACE_PAUSE).await;
    }
}

impl Inner {
    fn may_attempt(&self, now: Instant) -> bool {
        let mut attempted = self
            .attempted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let may = attempted.is_none_or(|last| now.duration_since(last) >= REPLACE_PAUSE);
        if may {
            *attempted = Some(now);
        }
        may
    }

    /// The old connection stays if this fails.
    async fn connect_anew(&self, reason: Reason) -> RedisResult<()> {
        // Before the name is resolved: if the address moves meanwhile, the connection is replaced again.
        let stay = self.target.stay();
        let manager = self
            .target
            .client
            .get_connection_manager_with_config(self.config.clone())
            .await?;
        server::expect_master(&mut manager.clone()).await?;
        let stay = match reason {
            Reason::WrongServer => self.target.leave(&self.open.load().stay),
            _ => stay,
        };
        self.open.store(Arc::new(Open { manager, stay }));
        self.timeouts.end();
        Ok(())
    }
}
