//! A connection to one server that no failure breaks for good.
//!
//! The library's manager opens a connection anew when it breaks. But if the server refuses the
//! login then, the manager keeps the failed attempt, and every later command gets its error, also
//! when the server accepts the login again (redis 1.8.1; redis-rs issue #984). A held lock could
//! not be extended any more. And if the server's name leads to another server now, while the old
//! one stays up as a replica, nothing breaks, and every request is refused.
//!
//! So the replies decide. A manager that is of no use is replaced: the name is resolved and the
//! user logs in anew.
//!
//! What a reader could get wrong: a manager that only times out is *not* replaced soon. A request
//! that timed out may be carried out later, and the release that follows frees what it took only if
//! it comes later on the same connection.

use std::{
    sync::{Mutex, PoisonError, RwLock, Weak},
    time::{Duration, Instant},
};

use redis::{
    Client, Cmd, ErrorKind, Pipeline, RedisFuture, RedisResult, Value,
    aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig},
};

use super::Wakeups;

/// Shortest time between two replacements. A server that refuses a password gets no more logins.
const REPLACE_PAUSE: Duration = Duration::from_millis(250);

/// Time with nothing but timeouts after which a connection is replaced: the name may lead to
/// another server by now, and the old one hangs.
const UNRESPONSIVE_MAX: Duration = Duration::from_secs(10);

/// Replies of a server that is of no use to this connection: it does not accept the user, is a
/// replica, or still reads its file.
const USELESS: [&str; 6] = [
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "READONLY",
    "MASTERDOWN",
    "LOADING",
];

/// A connection that many callers share. It is opened by the first request.
pub(super) struct Connection {
    client: Client,
    config: ConnectionManagerConfig,
    manager: RwLock<ConnectionManager>,
    /// When the manager was made.
    since: Mutex<Instant>,
    /// Start of the present run of timeouts.
    timeouts: Mutex<Option<Instant>>,
    /// Those who listen to its subscriptions, which a new connection does not have.
    wakeups: Weak<Wakeups>,
}

impl Connection {
    pub(super) fn new(
        client: Client,
        config: ConnectionManagerConfig,
        wakeups: Weak<Wakeups>,
    ) -> RedisResult<Self> {
        let manager = ConnectionManager::new_lazy_with_config(client.clone(), config.clone())?;
        Ok(Self {
            client,
            config,
            manager: RwLock::new(manager),
            since: Mutex::new(Instant::now()),
            timeouts: Mutex::default(),
            wakeups,
        })
    }

    /// Notes that a request got no reply in time.
    pub(super) fn note_timeout(&self) {
        let now = Instant::now();
        let since = *lock(&self.timeouts).get_or_insert(now);
        if now.duration_since(since) >= UNRESPONSIVE_MAX {
            self.replace("no reply for too long");
        }
    }

    pub(super) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        let subscribed = self.manager().subscribe(channel).await;
        self.note_subscription(&subscribed);
        subscribed
    }

    pub(super) async fn unsubscribe(&self, channel: &str) -> RedisResult<()> {
        let unsubscribed = self.manager().unsubscribe(channel).await;
        self.note_subscription(&unsubscribed);
        unsubscribed
    }

    /// A user without a right to channels locks all the same: a new connection would have no more
    /// rights, and would be subscribed anew, without an end.
    fn note_subscription(&self, result: &RedisResult<()>) {
        match result {
            Err(error) if error.code() == Some("NOPERM") => {}
            result => self.note(result, |()| None),
        }
    }

    fn manager(&self) -> ConnectionManager {
        self.manager
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Replaces the manager if a result says that it is of no use. The refusal of a command is a
    /// reply. An error of another kind than I/O, after which the manager reconnects by itself, is
    /// that of the attempt to connect.
    fn note<T>(&self, result: &RedisResult<T>, useless: impl FnOnce(&T) -> Option<&'static str>) {
        *lock(&self.timeouts) = None;
        match result {
            Ok(reply) => {
                if let Some(code) = useless(reply) {
                    self.replace(code);
                }
            }
            Err(error) if error.kind() != ErrorKind::Io => self.replace("login refused"),
            Err(_) => {}
        }
    }

    fn replace(&self, why: &'static str) {
        let mut since = lock(&self.since);
        if since.elapsed() < REPLACE_PAUSE {
            return;
        }
        *since = Instant::now();
        drop(since);
        *lock(&self.timeouts) = None;
        match ConnectionManager::new_lazy_with_config(self.client.clone(), self.config.clone()) {
            Ok(manager) => {
                *self.manager.write().unwrap_or_else(PoisonError::into_inner) = manager;
                tracing::debug!(why, "connection to a lock's server replaced");
                if let Some(wakeups) = self.wakeups.upgrade() {
                    wakeups.subscribe_anew();
                }
            }
            Err(error) => tracing::debug!(%error, "failed to replace a connection"),
        }
    }
}

/// Requests by many callers.
impl ConnectionLike for &Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let result = self.manager().req_packed_command(cmd).await;
            self.note(&result, useless);
            result
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let mut manager = self.manager();
            let result = manager.req_packed_commands(pipeline, offset, count).await;
            self.note(&result, |replies| replies.iter().find_map(useless));
            result
        })
    }

    fn get_db(&self) -> i64 {
        self.manager().get_db()
    }
}

fn useless(reply: &Value) -> Option<&'static str> {
    match reply {
        Value::ServerError(error) => USELESS.into_iter().find(|code| *code == error.code()),
        _ => None,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
