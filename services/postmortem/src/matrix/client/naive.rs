//! The locks of the stories, as people write them: one key on one Redis, a lease, and nobody who extends it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use async_trait::async_trait;
use redis::{Cmd, FromRedisValue, Script, aio::MultiplexedConnection};
use tokio::{sync::Mutex, time::sleep};
use uuid::Uuid;

use super::{Client, Held, Opening};
use crate::{actor::Host, matrix::contestant::Contestant};

/// Where the lock that takes two steps stands between them.
pub(in crate::matrix) const BETWEEN: &str = "between SETNX and EXPIRE";

const TRY_EVERY: Duration = Duration::from_millis(50);
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);
const COMPARE_AND_DELETE: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";

pub(super) struct Naive<'a> {
    server: Arc<Server>,
    contestant: Contestant,
    lease_ms: u64,
    host: Option<&'a Host>,
}

/// A key that is ours, unless it is somebody else's by now.
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

impl<'a> Naive<'a> {
    pub(super) fn open(opening: &Opening, host: Option<&'a Host>) -> Result<Self> {
        let server = Server {
            url: opening.url()?.into(),
            connection: Mutex::default(),
        };
        Ok(Self {
            server: Arc::new(server),
            contestant: opening.contestant,
            lease_ms: opening.lease_ms,
            host,
        })
    }

    async fn set(&self, name: &str, value: &str) -> Result<bool> {
        let lease_s = self.lease_ms.div_ceil(1000);
        let mut set = redis::cmd("SET");
        set.arg(name).arg(value);
        let set: Option<String> = match self.contestant {
            Contestant::SetNxCompare => {
                self.server
                    .ask(set.arg("NX").arg("PX").arg(self.lease_ms))
                    .await
            }
            Contestant::SetNxDel => self.server.ask(set.arg("EX").arg(lease_s).arg("NX")).await,
            Contestant::SetnxExpire => return self.set_and_expire(name, value, lease_s).await,
            other => bail!("{other} is not written by hand"),
        };
        Ok(set.is_some())
    }

    async fn set_and_expire(&self, name: &str, value: &str, lease_s: u64) -> Result<bool> {
        let set = self
            .server
            .ask(redis::cmd("SETNX").arg(name).arg(value))
            .await
            == Some(1);
        if set {
            if let Some(host) = self.host {
                host.point(BETWEEN).await?;
            }
            let _: Option<i64> = self
                .server
                .ask(redis::cmd("EXPIRE").arg(name).arg(lease_s))
                .await;
        }
        Ok(set)
    }
}

#[async_trait]
impl Client for Naive<'_> {
    async fn try_take(&self, name: &str) -> Result<Option<Box<dyn Held>>> {
        let value = Uuid::new_v4().to_string();
        if !self.set(name, &value).await? {
            return Ok(None);
        }
        let release = if self.contestant == Contestant::SetNxCompare {
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

    async fn take(&self, name: &str, patience: Duration) -> Result<Option<Box<dyn Held>>> {
        let until = Instant::now() + patience;
        loop {
            let held = self.try_take(name).await?;
            if held.is_some() || Instant::now() >= until {
                return Ok(held);
            }
            sleep(TRY_EVERY).await;
        }
    }
}

#[async_trait]
impl Held for Key {
    async fn give_back(self: Box<Self>) {
        let _: Option<i64> = match self.release {
            Release::Delete => self.server.ask(redis::cmd("DEL").arg(&self.name)).await,
            Release::CompareAndDelete => {
                self.server
                    .compare_and_delete(&self.name, &self.value)
                    .await
            }
        };
    }
}

/// One Redis. A connection that fails is made anew, as by any pool.
struct Server {
    url: String,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl Server {
    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Option<T> {
        let mut connection = self.connect().await?;
        let answer = command.query_async(&mut connection).await;
        self.heard(answer).await
    }

    async fn compare_and_delete(&self, name: &str, value: &str) -> Option<i64> {
        let mut connection = self.connect().await?;
        let answer = Script::new(COMPARE_AND_DELETE)
            .key(name)
            .arg(value)
            .invoke_async(&mut connection)
            .await;
        self.heard(answer).await
    }

    async fn heard<T>(&self, answer: redis::RedisResult<T>) -> Option<T> {
        if answer.is_err() {
            *self.connection.lock().await = None;
        }
        answer.ok()
    }

    async fn connect(&self) -> Option<MultiplexedConnection> {
        let mut connection = self.connection.lock().await;
        if connection.is_none() {
            let config = redis::AsyncConnectionConfig::new()
                .set_connection_timeout(Some(ANSWERS_WITHIN))
                .set_response_timeout(Some(ANSWERS_WITHIN));
            let client = redis::Client::open(self.url.as_str()).ok()?;
            *connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .ok();
        }
        connection.clone()
    }
}
