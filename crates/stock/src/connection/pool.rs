//! Connections to one address that one caller at a time uses.
//!
//! What a reader could get wrong: a pool checks that a connection works, and not where it leads.
//! What is idle at an old master that hangs works again as soon as that resumes. So when another
//! connection finds a new server behind the address, everything in the pool is dropped.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use deadpool_redis::{HookError, PoolError, Timeouts};
use futures::future::BoxFuture;
use redis::AsyncConnectionConfig;
use tokio_util::sync::CancellationToken;

use super::{pace::REPLACE_PAUSE, reconnecting::Target};
use crate::{StockError, refusal::never_sent};

/// A pool of connections. They are opened as they are needed.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    connections: deadpool_redis::Pool,
    target: Arc<Target>,
    /// The stay that the connections belong to.
    stay: Mutex<CancellationToken>,
    /// The last login that the server refused, and when.
    refused: Mutex<Option<(Instant, StockError)>>,
}

/// How long each step of lending a connection may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Until one is open.
    pub connect: Duration,
    /// Until one that was used before has shown that it works.
    pub recycle: Duration,
    /// Until one is free, and until the reply to a request.
    pub response: Duration,
}

impl Pool {
    /// `adapt` may add hooks.
    pub(super) fn new(
        target: &Arc<Target>,
        max_size: usize,
        limits: Limits,
        adapt: impl FnOnce(deadpool_redis::PoolBuilder) -> deadpool_redis::PoolBuilder,
    ) -> Result<Self, StockError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limits.connect))
            .set_response_timeout(Some(limits.response));
        let info = target.client.get_connection_info().clone();
        let manager = deadpool_redis::Manager::new_with_config(info, config)?;
        let builder = deadpool_redis::Pool::builder(manager)
            .max_size(max_size)
            .timeouts(Timeouts {
                wait: Some(limits.response),
                create: Some(limits.connect),
                recycle: Some(limits.recycle),
            })
            .runtime(deadpool_redis::Runtime::Tokio1);
        let connections = adapt(builder)
            .build()
            .map_err(|error| StockError::Pool(error.to_string()))?;
        Ok(Self(Arc::new(Inner {
            connections,
            stay: Mutex::new(target.stay()),
            target: Arc::clone(target),
            refused: Mutex::default(),
        })))
    }

    /// Lends a connection. If that fails, nothing was sent. A refused login is not repeated for a
    /// moment: a server that refuses a password must not get one for each order.
    pub(super) async fn get(&self) -> Result<deadpool_redis::Connection, StockError> {
        let inner = &*self.0;
        inner.follow();
        if let Some((when, error)) = &*lock(&inner.refused)
            && when.elapsed() < REPLACE_PAUSE
        {
            return Err(error.clone());
        }
        // Behind a pointer: it holds all that opens a connection, and every caller would hold it
        // too.
        let lending: BoxFuture<'_, _> = Box::pin(inner.connections.get());
        let lent = lending.await.map_err(unavailable);
        if let Err(error) = &lent
            && error.is_refusal()
        {
            *lock(&inner.refused) = Some((Instant::now(), error.clone()));
        }
        lent
    }
}

/// Gives a connection back, unless a request on it has failed: it may hang, or be of no use. The
/// next one resolves the address and logs in anew.
pub(super) fn give_back(connection: deadpool_redis::Connection, works: bool) {
    if !works {
        drop(deadpool_redis::Connection::take(connection));
    }
}

impl Inner {
    /// Drops what is idle if it may lead to a server that the address led to before.
    fn follow(&self) {
        let mut stay = lock(&self.stay);
        if stay.is_cancelled() {
            *stay = self.target.stay();
            self.connections.retain(|_, _| false);
        }
    }
}

/// Tells what a server refused from what was only not reached in time.
fn unavailable(error: PoolError) -> StockError {
    let text = error.to_string();
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            let error = StockError::Redis(never_sent(error));
            if error.is_refusal() {
                error
            } else {
                StockError::Pool(text)
            }
        }
        _ => StockError::Pool(text),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io;

    use redis::{ErrorKind, RedisError};

    use super::{PoolError, StockError, unavailable};

    #[test]
    fn nothing_was_sent_whatever_kept_a_connection_from_being_lent() {
        let login = RedisError::from((ErrorKind::AuthenticationFailed, "wrong password"));
        let refused = unavailable(PoolError::Backend(login));
        assert!(
            refused.is_refusal() && refused.proves_unchanged(),
            "{refused}"
        );
        let failed = |kind: io::ErrorKind| PoolError::Backend(io::Error::from(kind).into());
        for kind in [io::ErrorKind::TimedOut, io::ErrorKind::ConnectionRefused] {
            let lost = unavailable(failed(kind));
            assert!(matches!(lost, StockError::Pool(_)), "{lost:?}");
            assert!(lost.proves_unchanged() && !lost.is_refusal());
        }
        let full = unavailable(failed(io::ErrorKind::ConnectionReset));
        assert!(full.proves_unchanged() && full.is_refusal(), "{full:?}");
        let hook = RedisError::from((ErrorKind::Client, "the server is a replica"));
        assert!(unavailable(PoolError::Backend(hook)).proves_unchanged());
    }
}
