//! A connection to one address that many callers share, and that no failure breaks for good.
//!
//! A [`Link`] opens its connection anew when it breaks. There are states that it does not leave by
//! itself:
//!
//! * The server refused the login, or what follows it, while the link reconnected. The link keeps
//!   the failed attempt, and every later command gets its error, also when the server accepts the
//!   login again.
//! * The address leads to another server now, and the old one stays up as a replica. It replies, so
//!   nothing breaks, and it refuses every write.
//! * The address leads to another server, and the old one hangs. Nothing breaks either.
//!
//! So the replies decide ([`Worth`]), and not the state of the socket. A connection that is of no
//! use is replaced: the name is resolved and the user logs in anew. The old connection stays until
//! the new one leads to a master.
//!
//! When one connection has found a new server, all others to the same address follow it, also those
//! that only read: a replica would answer them with old data. What counts is which server replies
//! (its `run_id`), and not why the connection was replaced: an old master that hangs may resume as
//! a master. If the link reconnects by itself, this looks which server it has reached. A server
//! that was restarted has another `run_id` too; to open the others anew is harmless then.
//!
//! A command that found no connection was never sent, and its error says so ([`never_sent`]).

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::AtomicBool},
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value,
};
use tokio::{runtime::Handle, time::timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    claim::Claim,
    link::{Link, Ready},
    pace::{Pace, REPLACE_PAUSE},
    server,
    timeouts::TimeoutRun,
};
use crate::refusal::{Worth, never_sent, worth_of_reply};

/// Time limit for an attempt to replace a connection. The next one resolves the name again, and may
/// reach a server that responds.
const ATTEMPT_MAX: Duration = Duration::from_secs(3);

/// A server's address, and what all connections to it have in common.
pub(crate) struct Target {
    pub(super) client: Client,
    /// Cancelled when the address is used no more: Sentinel has named another.
    pub(super) ended: CancellationToken,
    /// Cancelled when the address has turned out to lead to another server, or has ended.
    /// Connections that were opened before are of no use then.
    stay: Mutex<CancellationToken>,
}

impl Target {
    pub(super) fn new(client: Client) -> Arc<Self> {
        let ended = CancellationToken::new();
        Arc::new(Self {
            client,
            stay: Mutex::new(ended.child_token()),
            ended,
        })
    }

    /// A token that is cancelled when the address leads to another server, or has ended.
    pub(super) fn stay(&self) -> CancellationToken {
        self.locked_stay().clone()
    }

    /// Has every other connection follow one that has found a new server, and returns the new stay.
    /// `None`: another has led them away from there before.
    fn leave(&self, left: &CancellationToken) -> Option<CancellationToken> {
        let mut stay = self.locked_stay();
        if left.is_cancelled() {
            return None;
        }
        *stay = self.ended.child_token();
        left.cancel();
        Some(stay.clone())
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
    config: AsyncConnectionConfig,
    /// A connection is driven by the runtime that opened it.
    runtime: Handle,
    open: ArcSwap<Open>,
    timeouts: TimeoutRun,
    replacing: Arc<AtomicBool>,
    looking: Arc<AtomicBool>,
    pace: Pace<Reason>,
    /// Ends the task that follows the address.
    _dropped: DropGuard,
}

/// A connection, the server that it led to when it was opened, and the stay of the address that it
/// belongs to.
struct Open {
    link: Link,
    run_id: Arc<str>,
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
    /// It has reconnected by itself, and leads to another server now.
    Reconnected,
    /// Another connection has found the server that the address leads to now.
    Moved,
}

impl Reconnecting {
    /// Connects to the server that the client's address leads to. The calling runtime drives the
    /// connection.
    pub async fn open(client: Client, config: AsyncConnectionConfig) -> RedisResult<Self> {
        Self::open_at(&Target::new(client), config).await
    }

    pub(super) async fn open_at(
        target: &Arc<Target>,
        config: AsyncConnectionConfig,
    ) -> RedisResult<Self> {
        let stay = target.stay();
        let link = Link::open(target.client.clone(), config.clone()).await?;
        let run_id = link.ready().await?.run_id;
        let dropped = CancellationToken::new();
        let open = Open { link, run_id, stay };
        let connection = Self(Arc::new(Inner {
            target: Arc::clone(target),
            config,
            runtime: Handle::current(),
            open: ArcSwap::from_pointee(open),
            timeouts: TimeoutRun::default(),
            replacing: Arc::default(),
            looking: Arc::default(),
            pace: Pace::default(),
            _dropped: dropped.clone().drop_guard(),
        }));
        let follow = follow(Arc::downgrade(&connection.0));
        tokio::spawn(async move { dropped.run_until_cancelled(follow).await });
        Ok(connection)
    }

    pub(super) async fn command(&self, cmd: &Cmd) -> RedisResult<Value> {
        let open = self.0.open.load_full();
        let mut ready = self.ready(&open).await?;
        let result = ready.connection.send_packed_command(cmd).await;
        open.link.note(&ready, &result);
        self.note(&open, &result, worth_of_reply);
        result
    }

    pub(super) async fn commands(
        &self,
        pipeline: &Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let open = self.0.open.load_full();
        let mut ready = self.ready(&open).await?;
        let sending = ready
            .connection
            .send_packed_commands(pipeline, offset, count);
        let result = sending.await;
        open.link.note(&ready, &result);
        self.note(&open, &result, |replies| {
            let mut worths = replies.iter().map(worth_of_reply);
            worths
                .find(|worth| *worth != Worth::Good)
                .unwrap_or(Worth::Good)
        });
        result
    }

    /// The connection to send a command on. If it leads to another server now, it is replaced
    /// meanwhile.
    async fn ready(&self, open: &Arc<Open>) -> RedisResult<Ready> {
        let ready = open.link.ready().await;
        match &ready {
            Ok(ready) if ready.run_id == open.run_id => {}
            Ok(_) => self.replace(Reason::Reconnected),
            Err(_) => self.note(open, &ready, |_| Worth::Good),
        }
        ready.map_err(never_sent)
    }

    pub(super) fn db(&self) -> i64 {
        self.0.open.load().link.db()
    }

    /// Notes how a request on `open` ended. If that has been replaced meanwhile, the result says
    /// nothing of the present connection.
    fn note<T>(&self, open: &Arc<Open>, result: &RedisResult<T>, worth: impl Fn(&T) -> Worth) {
        if !Arc::ptr_eq(open, &self.0.open.load()) {
            return;
        }
        let timed_out = result.as_ref().is_err_and(RedisError::is_timeout);
        if self.0.timeouts.note(timed_out, Instant::now()) {
            self.replace(Reason::Unresponsive);
        }
        match result.as_ref().map(worth) {
            Ok(Worth::Good) => self.0.pace.is_well(),
            Ok(Worth::WrongServer) => self.replace(Reason::WrongServer),
            Ok(Worth::LogInAnew) => self.replace(Reason::Refused),
            // The refusal of a command is a reply. An error of another kind than I/O, after which
            // the link reconnects by itself, is that of the attempt to connect.
            Err(error) if error.kind() != ErrorKind::Io => self.replace(Reason::Refused),
            Err(_) if timed_out => {}
            Err(_) => self.look(),
        }
    }

    /// Begins to replace the connection, unless that is under way.
    fn replace(&self, reason: Reason) {
        let Some(claim) = Claim::of(&self.0.replacing) else {
            return;
        };
        if !self.0.pace.may_attempt(reason, Instant::now()) {
            return;
        }
        let inner = Arc::clone(&self.0);
        self.0.runtime.spawn(async move {
            let _claim = claim;
            let replaced = timeout(ATTEMPT_MAX, inner.connect_anew(reason)).await;
            match replaced.unwrap_or_else(|_| Err(server::no_reply())) {
                Ok(()) => inner.note_replaced(reason),
                Err(error) => tracing::debug!(%error, ?reason, "no better connection to Redis yet"),
            }
        });
    }

    /// Begins to look which server a connection leads to that has broken: the link resolves the
    /// name when it reconnects. It looks until a server has replied.
    fn look(&self) {
        let Some(claim) = Claim::of(&self.0.looking) else {
            return;
        };
        let inner = Arc::downgrade(&self.0);
        self.0.runtime.spawn(async move {
            let _claim = claim;
            loop {
                tokio::time::sleep(REPLACE_PAUSE).await;
                let Some(inner) = inner.upgrade() else {
                    return;
                };
                match inner.leads_elsewhere().await {
                    Some(false) => return,
                    Some(true) => Self(inner).replace(Reason::Reconnected),
                    None => {}
                }
            }
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
        match inner.upgrade() {
            Some(inner) if !inner.target.ended.is_cancelled() => {
                Reconnecting(inner).replace(Reason::Moved);
            }
            _ => return,
        }
        tokio::time::sleep(REPLACE_PAUSE).await;
    }
}

impl Inner {
    /// The old connection stays if this fails.
    async fn connect_anew(&self, reason: Reason) -> RedisResult<()> {
        // Before the name is resolved: if the address moves meanwhile, the connection is replaced
        // again.
        let stay = self.target.stay();
        let link = Link::open(self.target.client.clone(), self.config.clone()).await?;
        let Ready {
            mut connection,
            run_id,
            ..
        } = link.ready().await?;
        server::expect_master(&mut connection).await?;
        let old = self.open.load_full();
        let has_moved = run_id != old.run_id || reason == Reason::WrongServer;
        let led = has_moved.then(|| self.target.leave(&old.stay)).flatten();
        self.open.store(Arc::new(Open {
            link,
            run_id,
            stay: led.unwrap_or(stay),
        }));
        self.timeouts.end();
        Ok(())
    }

    fn note_replaced(&self, reason: Reason) {
        metrics::counter!("stockade_redis_clients_replaced_total").increment(1);
        if self.pace.replaced(reason) {
            tracing::warn!(?reason, "connection to Redis replaced");
        } else {
            tracing::debug!(?reason, "connection to Redis replaced once more");
        }
    }

    /// Whether the connection leads to another server than when it was opened. `None`: no server
    /// has replied, or the connection has been replaced meanwhile.
    async fn leads_elsewhere(&self) -> Option<bool> {
        let open = self.open.load_full();
        let mut ready = timeout(ATTEMPT_MAX, open.link.ready()).await.ok()?.ok()?;
        let asked = timeout(ATTEMPT_MAX, server::run_id(&mut ready.connection)).await;
        let asked = asked.unwrap_or_else(|_| Err(server::no_reply()));
        open.link.note(&ready, &asked);
        let found = asked.ok()?;
        Arc::ptr_eq(&open, &self.open.load()).then(|| found != *open.run_id)
    }
}
