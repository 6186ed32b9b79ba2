//! The backends of `lock`.

use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;
use lock::{
    Capabilities, FencingToken, Guard, Lock, LockError, RedisLock, RedisLockBuilder, Redlock,
    RedlockBuilder, SqlLockBuilder, ZooKeeperBuilder,
};
use tokio::time::timeout;

use super::api::{Client, HeldLock, LockSettings};
use crate::backend::Backend;

/// Longest time to wait for one response of a server. The servers are fast, but the machine may be
/// busy.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Shortest time to wait until new Redlock nodes vote. Without a quorum the client opens anyway.
const QUORUM_TIMEOUT: Duration = Duration::from_millis(500);
/// `tickTime` of the ZooKeeper servers that the testbed starts.
const ZOOKEEPER_TICK: Duration = Duration::from_millis(100);

/// Each kind of lock has a table of its own.
const ADVISORY_TABLE: &str = "advisory_locks";
const FOR_UPDATE_TABLE: &str = "row_locks";

pub(super) struct CrateLock(Box<dyn Lock>);

impl CrateLock {
    pub(super) async fn open(settings: &LockSettings) -> Result<Self> {
        if let Some(lock) = sql_lock(settings)? {
            return Ok(Self(lock.into_lock()));
        }
        let lock: Box<dyn Lock> = match settings.backend {
            Backend::Redlock => Box::new(redlock(settings, false).await?),
            Backend::RedlockFair => Box::new(redlock(settings, true).await?),
            Backend::Redis => Box::new(redis(settings)?),
            Backend::RedisReentrant => Box::new(redis(settings)?.reentrant()),
            #[cfg(feature = "etcd")]
            Backend::Etcd => Box::new(
                lock::EtcdBuilder::new(&settings.urls)
                    .lease(settings.lease())
                    .build()
                    .await?,
            ),
            Backend::ZooKeeper => Box::new(
                ZooKeeperBuilder::new(settings.url()?)
                    .lease(settings.lease())
                    .tick_time(ZOOKEEPER_TICK)
                    .build()
                    .await?,
            ),
            other => bail!("{other} is not a backend of the crate lock"),
        };
        Ok(Self(lock))
    }
}

/// Creates the table of a lock in a database. Other backends have none.
pub(super) async fn create_table(settings: &LockSettings) -> Result<()> {
    match sql_lock(settings)? {
        Some(lock) => lock.create_table().await,
        None => Ok(()),
    }
}

fn response_timeout(settings: &LockSettings) -> Duration {
    RESPONSE_TIMEOUT.min(settings.lease() / 3)
}

async fn redlock(settings: &LockSettings, fair: bool) -> Result<Redlock> {
    let lease = settings.lease();
    let lock = RedlockBuilder::new(&settings.urls)
        .lease(lease)
        .node_timeout(response_timeout(settings))
        .fair(fair)
        .build_without_waiting()?;
    let quorum_timeout = QUORUM_TIMEOUT.max(lease + lease / 2);
    let _ = timeout(quorum_timeout, lock.wait_for_a_quorum()).await;
    Ok(lock)
}

fn redis(settings: &LockSettings) -> Result<RedisLock> {
    let builder = RedisLockBuilder::new(settings.url()?)
        .lease(settings.lease())
        .server_timeout(response_timeout(settings));
    Ok(builder.build()?)
}

/// A lock in a database.
#[async_trait]
trait SqlLock: Send + Sync {
    async fn create_table(&self) -> Result<()>;

    fn into_lock(self: Box<Self>) -> Box<dyn Lock>;
}

macro_rules! impl_sql_lock {
    ($($lock:ty),* $(,)?) => {$(
        #[async_trait]
        impl SqlLock for $lock {
            async fn create_table(&self) -> Result<()> {
                Ok(<$lock>::create_table(self).await?)
            }

            fn into_lock(self: Box<Self>) -> Box<dyn Lock> {
                self
            }
        }
    )*};
}

impl_sql_lock!(
    lock::PostgresLock,
    lock::PostgresSessionLock,
    lock::MySqlLock,
    lock::MySqlSessionLock,
    lock::SqliteLock,
);

/// A builder for this kind of database. A macro, because the bound that a function would need is
/// private to the crate `lock`.
macro_rules! sql_builder {
    ($database:ty, $settings:expr) => {
        SqlLockBuilder::<$database>::connect($settings.url()?).lease($settings.lease())
    };
}

/// The lock of a backend that is kept in a database; `None` for every other backend.
fn sql_lock(settings: &LockSettings) -> Result<Option<Box<dyn SqlLock>>> {
    use sqlx::{MySql, Postgres, Sqlite};
    Ok(Some(match settings.backend {
        Backend::Postgres => Box::new(sql_builder!(Postgres, settings).build()?),
        Backend::PostgresAdvisory => {
            let builder = sql_builder!(Postgres, settings).table(ADVISORY_TABLE);
            Box::new(builder.build_advisory()?)
        }
        Backend::PostgresForUpdate => {
            let builder = sql_builder!(Postgres, settings).table(FOR_UPDATE_TABLE);
            Box::new(builder.build_for_update()?)
        }
        Backend::Mysql => Box::new(sql_builder!(MySql, settings).build()?),
        Backend::MysqlAdvisory => {
            let builder = sql_builder!(MySql, settings).table(ADVISORY_TABLE);
            Box::new(builder.build_advisory()?)
        }
        Backend::MysqlForUpdate => {
            let builder = sql_builder!(MySql, settings).table(FOR_UPDATE_TABLE);
            Box::new(builder.build_for_update()?)
        }
        Backend::Sqlite => Box::new(sql_builder!(Sqlite, settings).build()?),
        _ => return Ok(None),
    }))
}

#[async_trait]
impl Client for CrateLock {
    fn capabilities(&self) -> Option<Capabilities> {
        Some(self.0.capabilities())
    }

    async fn try_acquire(&self, name: &str) -> Result<Option<Box<dyn HeldLock>>> {
        held(self.0.try_acquire(name).await)
    }

    async fn acquire(&self, name: &str, timeout: Duration) -> Result<Option<Box<dyn HeldLock>>> {
        held(self.0.acquire_within(name, timeout).await)
    }

    fn note_token(&self, name: &str, token: FencingToken) -> Result<()> {
        Ok(self.0.observe(name, token)?)
    }
}

/// Treats every reason for not acquiring the lock alike, except invalid arguments.
fn held(acquired: Result<Guard, LockError>) -> Result<Option<Box<dyn HeldLock>>> {
    match acquired {
        Ok(guard) => Ok(Some(Box::new(guard))),
        Err(LockError::Invalid(error)) => Err(error.into()),
        Err(error) => {
            tracing::debug!(%error, "lock not acquired");
            Ok(None)
        }
    }
}

#[async_trait]
impl HeldLock for Guard {
    fn token(&self) -> Option<FencingToken> {
        Some(Guard::token(self))
    }

    async fn lost(&mut self) {
        let _ = self.run(|_| std::future::pending::<()>()).await;
    }

    async fn release(self: Box<Self>) {
        let _ = Guard::release(*self).await;
    }
}
