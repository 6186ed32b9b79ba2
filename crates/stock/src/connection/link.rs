//! A connection to one server that is opened anew when it breaks.
//!
//! The library has such a manager, and its errors do not tell whether a command was sent. Redis at
//! its `maxclients` accepts a connection and closes it, so an order that found no connection looks
//! like one whose reply was lost. Here the two are apart: [`Link::ready`] fails before anything is
//! sent.
//!
//! What a reader could get wrong: that a connection was opened does not mean that the server takes
//! commands. The library ignores the errors of what it sends first. So an attempt ends with the
//! reply to a command of our own, which also names the server.
//!
//! A connection that breaks while it is idle looks open until a command fails, and then the command
//! may have been sent. So a connection that was idle is examined before use ([`is_closed`]).

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult, aio::MultiplexedConnection,
};
use tokio::{runtime::Handle, time::sleep};
use tokio_util::task::AbortOnDropHandle;

use super::server;

/// How often an attempt is repeated before its error counts.
const REPEATS: u32 = 3;

/// Pause before the first repeat. Each one that follows is twice as long.
const REPEAT_PAUSE: Duration = Duration::from_millis(20);

/// A connection that brought no reply for this long is examined before use.
const EXAMINED_AFTER: Duration = Duration::from_millis(100);

/// An attempt to connect, which all callers share. It goes on whether they wait for it or not.
type Attempt = Shared<BoxFuture<'static, RedisResult<Server>>>;

/// A server that has replied.
#[derive(Clone)]
struct Server {
    connection: MultiplexedConnection,
    run_id: Arc<str>,
}

pub(super) struct Link {
    client: Client,
    config: AsyncConnectionConfig,
    /// A connection is driven by the runtime that opened it.
    runtime: Handle,
    attempt: ArcSwap<Attempt>,
    /// Locked while the attempt is replaced.
    replacing: Mutex<()>,
    opened: Instant,
    /// When the last reply came, in milliseconds since `opened`.
    replied: AtomicU64,
}

/// A connection that the next command can be sent on.
pub(super) struct Ready {
    pub connection: MultiplexedConnection,
    pub run_id: Arc<str>,
    attempt: Arc<Attempt>,
}

impl Link {
    /// Connects. The calling runtime drives the connection.
    pub(super) async fn open(client: Client, config: AsyncConnectionConfig) -> RedisResult<Self> {
        let runtime = Handle::current();
        let attempt = begin(&runtime, &client, &config);
        attempt.clone().await?;
        Ok(Self {
            client,
            config,
            runtime,
            attempt: ArcSwap::from_pointee(attempt),
            replacing: Mutex::default(),
            opened: Instant::now(),
            replied: AtomicU64::default(),
        })
    }

    pub(super) fn db(&self) -> i64 {
        self.client.get_connection_info().redis_settings().db()
    }

    /// Waits for the connection. After an error nothing was sent. After one of I/O the next attempt
    /// has begun. Any other is that of a server which refuses the user, and stays: a server that
    /// refuses a password must not get one for each command.
    pub(super) async fn ready(&self) -> RedisResult<Ready> {
        let mut attempt = self.attempt.load_full();
        let mut server = self.outcome(&attempt).await?;
        if self.was_idle() && is_closed(&server.connection) {
            self.reopen(&attempt);
            attempt = self.attempt.load_full();
            server = self.outcome(&attempt).await?;
        }
        Ok(Ready {
            connection: server.connection,
            run_id: server.run_id,
            attempt,
        })
    }

    async fn outcome(&self, attempt: &Arc<Attempt>) -> RedisResult<Server> {
        let outcome = Attempt::clone(attempt).await;
        if outcome.as_ref().is_err_and(RedisError::is_io_error) {
            self.reopen(attempt);
        }
        outcome
    }

    /// Notes how a command ended. If its connection has broken, the next attempt begins.
    pub(super) fn note<T>(&self, used: &Ready, result: &RedisResult<T>) {
        match result {
            Err(error) if error.is_unrecoverable_error() => self.reopen(&used.attempt),
            Err(_) => {}
            Ok(_) => self.replied.store(self.age(), Ordering::Relaxed),
        }
    }

    fn was_idle(&self) -> bool {
        let idle = self
            .age()
            .saturating_sub(self.replied.load(Ordering::Relaxed));
        u128::from(idle) >= EXAMINED_AFTER.as_millis()
    }

    /// Milliseconds since the first connection was opened.
    fn age(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Begins the next attempt, unless another caller has.
    fn reopen(&self, ended: &Arc<Attempt>) {
        let _replacing = self
            .replacing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&self.attempt.load(), ended) {
            let next = begin(&self.runtime, &self.client, &self.config);
            self.attempt.store(Arc::new(next));
        }
    }
}

/// Begins an attempt on this runtime, also if another one waits for it.
fn begin(runtime: &Handle, client: &Client, config: &AsyncConnectionConfig) -> Attempt {
    let connecting = connect(client.clone(), config.clone());
    let connecting = AbortOnDropHandle::new(runtime.spawn(connecting));
    let ended = |_| RedisError::from((ErrorKind::Io, "the runtime of a connection has ended"));
    let outcome = connecting.map(move |joined| joined.map_err(ended).flatten());
    outcome.boxed().shared()
}

async fn connect(client: Client, config: AsyncConnectionConfig) -> RedisResult<Server> {
    let mut pause = REPEAT_PAUSE;
    let mut outcome = connect_once(&client, &config).await;
    for _ in 0..REPEATS {
        if outcome.is_ok() {
            break;
        }
        // Clients that were cut together do not come back together.
        sleep(pause.mul_f64(rand::random_range(0.5..1.5))).await;
        pause *= 2;
        outcome = connect_once(&client, &config).await;
    }
    outcome
}

async fn connect_once(client: &Client, config: &AsyncConnectionConfig) -> RedisResult<Server> {
    let connecting = client.get_multiplexed_async_connection_with_config(config);
    let mut connection = connecting.await?;
    let run_id = server::run_id(&mut connection).await?.into();
    Ok(Server { connection, run_id })
}

/// Whether a connection has certainly been closed. The request is dropped before the library sends
/// it; that it could not even be queued is what tells. If the library is quicker, a `PING` is sent.
fn is_closed(connection: &MultiplexedConnection) -> bool {
    let mut connection = connection.clone();
    let ping = redis::cmd("PING");
    let queued = connection.send_packed_command(&ping).now_or_never();
    matches!(queued, Some(Err(error)) if error.is_unrecoverable_error())
}
