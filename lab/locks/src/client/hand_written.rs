//! The locks of the post-mortem cases, as people write them: one key on one Redis server, with a
//! lease that the holder does not extend.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use async_trait::async_trait;
use postmortem::actor::Host;
use redis::{Cmd, FromRedisValue, Script, aio::MultiplexedConnection};
use tokio::{sync::Mutex, time::sleep};
use uuid::Uuid;

use super::api::{Client, HeldLock, LockSettings};
use crate::backend::Backend;

/// Point between the two steps of the lock that needs two.
pub(crate) const BETWEEN_STEPS: &str = "between SETNX and EXPIRE";

const POLL_INTERVAL: Duration = Duration::from_millis(50);
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);
const COMPARE_AND_DELETE: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";

pub(super) struct HandWritten<'a> {
    server: Arc<Server>,
    backend: Backend,
    lease_ms: u64,
    host: Option<&'a Host>,
}

/// A key that this client has set. After the lease, another client may own it.
struct Key {
    server: Arc<Server>,
    release: Release,
    name: String,
    value: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Release {
    Delete,
    CompareAndDelete,
}

impl<'a> HandWritten<'a> {
    pub(super) fn open(settings: &LockSettings, host: Option<&'a Host>) -> Result<Self> {
        let server = Server {
            url: settings.url()?.into(),
            connection: Mutex::default(),
        };
        Ok(Self {
            server: Arc::new(server),
            backend: settings.backend,
            lease_ms: settings.lease_ms,
            host,
        })
    }

    async fn set(&self, name: &str, value: &str) -> Result<bool> {
        let lease_s = self.lease_ms.div_ceil(1000);
        let mut set = redis::cmd("SET");
        set.arg(name).arg(value);
        match self.backend {
            Backend::SetNxCompare => set.arg("NX").arg("PX").arg(self.lease_ms),
            Backend::SetNxDel => set.arg("EX").arg(lease_s).arg("NX"),
            Backend::SetnxExpire => return self.set_and_expire(name, value, lease_s).await,
            other => bail!("{other} is not a hand-written lock"),
        };
        let set: Option<String> = self.server.query(&set).await;
        Ok(set.is_some())
    }

    async fn set_and_expire(&self, name: &str, value: &str, lease_s: u64) -> Result<bool> {
        let reply = self
            .server
            .query(redis::cmd("SETNX").arg(name).arg(value))
            .await;
        let is_set = reply == Some(1);
        if is_set {
            if let Some(host) = self.host {
                host.point(BETWEEN_STEPS).await?;
            }
            let _: Option<i64> = self
                .server
                .query(redis::cmd("EXPIRE").arg(name).arg(lease_s))
                .await;
        }
        Ok(is_set)
    }
}

#[async_trait]
impl Client for HandWritten<'_> {
    async fn try_acquire(&self, name: &str) -> Result<Option<Box<dyn HeldLock>>> {
        let value = Uuid::new_v4().to_string();
        if !self.set(name, &value).await? {
            return Ok(None);
        }
        let release = if self.backend == Backend::SetNxCompare {
            Release::CompareAndDelete
        } else {
            Release::Delete
        };
        Ok(Some(Box::new(Key {
            server: Arc::clone(&self.server),
            release,
            name: name.into(),
            value,
        })))
    }

    async fn acquire(&self, name: &str, timeout: Duration) -> Result<Option<Box<dyn HeldLock>>> {
        let deadline = Instant::now() + timeout;
        loop {
            let held = self.try_acquire(name).await?;
            if held.is_some() || Instant::now() >= deadline {
                return Ok(held);
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

#[async_trait]
impl HeldLock for Key {
    async fn release(self: Box<Self>) {
        let _: Option<i64> = match self.release {
            Release::Delete => self.server.query(redis::cmd("DEL").arg(&self.name)).await,
            Release::CompareAndDelete => {
                self.server
                    .compare_and_delete(&self.name, &self.value)
                    .await
            }
        };
    }
}

/// One Redis server. A failed connection is replaced at the next command, as in a pool. Queries
/// return `None` on any error.
struct Server {
    url: String,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Server {
    async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Option<T> {
        let mut connection = self.connect().await?;
        let reply = command.query_async(&mut connection).await;
        self.checked(reply).await
    }

    async fn compare_and_delete(&self, name: &str, value: &str) -> Option<i64> {
        let mut connection = self.connect().await?;
        let reply = Script::new(COMPARE_AND_DELETE)
            .key(name)
            .arg(value)
            .invoke_async(&mut connection)
            .await;
        self.checked(reply).await
    }

    /// Drops the connection after an error.
    async fn checked<T>(&self, reply: redis::RedisResult<T>) -> Option<T> {
        if reply.is_err() {
            *self.connection.lock().await = None;
        }
        reply.ok()
    }

    async fn connect(&self) -> Option<MultiplexedConnection> {
        let mut connection = self.connection.lock().await;
        if connection.is_none() {
            let config = redis::AsyncConnectionConfig::new()
                .set_connection_timeout(Some(RESPONSE_TIMEOUT))
                .set_response_timeout(Some(RESPONSE_TIMEOUT));
            let client = redis::Client::open(self.url.as_str()).ok()?;
            *connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .ok();
        }
        connection.clone()
    }
}
