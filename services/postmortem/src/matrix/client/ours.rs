//! The backends of `lock`.

use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;
use lock::{
    Capabilities, FencingToken, Guard, Lock, LockError, RedisLockBuilder, RedlockBuilder,
    SqlLockBuilder, ZooKeeperBuilder,
};
use tokio::time::timeout;

use super::{Client, Held, Opening};
use crate::matrix::contestant::Contestant;

/// How long a server is waited for, at most: none is slow, and a busy machine is.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);
/// A newcomer to nodes of which too few vote goes on without them.
const VOTES_WITHIN: Duration = Duration::from_millis(500);
/// Of the servers that the testbed starts.
const TICK: Duration = Duration::from_millis(100);

pub(super) struct Ours(Box<dyn Lock>);

/// The lock that is in a database, of whichever kind.
macro_rules! in_a_database {
    ($opening:expr, $database:ty) => {
        SqlLockBuilder::<$database>::connect($opening.url()?).lease($opening.lease())
    };
}

/// Each kind has a table of its own.
const ADVISORY: &str = "advisory_locks";
const FOR_UPDATE: &str = "row_locks";

impl Ours {
    pub(super) async fn open(opening: &Opening) -> Result<Self> {
        use Contestant as C;
        let lease = opening.lease();
        let answers_within = ANSWERS_WITHIN.min(lease / 3);
        let lock: Box<dyn Lock> = match opening.contestant {
            C::Redlock | C::RedlockFair => {
                let builder = RedlockBuilder::new(&opening.urls)
                    .lease(lease)
                    .node_timeout(answers_within);
                let lock = builder
                    .fair(opening.contestant == C::RedlockFair)
                    .build_without_waiting()?;
                let _ = timeout(
                    VOTES_WITHIN.max(lease + lease / 2),
                    lock.wait_for_a_quorum(),
                )
                .await;
                Box::new(lock)
            }
            C::Redis => Box::new(
                RedisLockBuilder::new(opening.url()?)
                    .lease(lease)
                    .server_timeout(answers_within)
                    .build()?,
            ),
            C::RedisReentrant => Box::new(
                RedisLockBuilder::new(opening.url()?)
                    .lease(lease)
                    .server_timeout(answers_within)
                    .build()?
                    .reentrant(),
            ),
            C::Postgres => Box::new(in_a_database!(opening, sqlx::Postgres).build()?),
            C::PostgresAdvisory => Box::new(
                in_a_database!(opening, sqlx::Postgres)
                    .table(ADVISORY)
                    .build_advisory()?,
            ),
            C::PostgresForUpdate => Box::new(
                in_a_database!(opening, sqlx::Postgres)
                    .table(FOR_UPDATE)
                    .build_for_update()?,
            ),
            C::Mysql => Box::new(in_a_database!(opening, sqlx::MySql).build()?),
            C::MysqlAdvisory => Box::new(
                in_a_database!(opening, sqlx::MySql)
                    .table(ADVISORY)
                    .build_advisory()?,
            ),
            C::MysqlForUpdate => Box::new(
                in_a_database!(opening, sqlx::MySql)
                    .table(FOR_UPDATE)
                    .build_for_update()?,
            ),
            C::Sqlite => Box::new(in_a_database!(opening, sqlx::Sqlite).build()?),
            #[cfg(feature = "etcd")]
            C::Etcd => Box::new(
                lock::EtcdBuilder::new(&opening.urls)
                    .lease(lease)
                    .build()
                    .await?,
            ),
            C::ZooKeeper => Box::new(
                ZooKeeperBuilder::new(opening.url()?)
                    .lease(lease)
                    .tick_time(TICK)
                    .build()
                    .await?,
            ),
            other => bail!("{other} is not a lock of ours"),
        };
        Ok(Self(lock))
    }
}

pub(super) async fn create_table(opening: &Opening) -> Result<()> {
    use Contestant as C;
    match opening.contestant {
        C::Postgres => {
            in_a_database!(opening, sqlx::Postgres)
                .build()?
                .create_table()
                .await?
        }
        C::PostgresAdvisory => {
            in_a_database!(opening, sqlx::Postgres)
                .table(ADVISORY)
                .build_advisory()?
                .create_table()
                .await?
        }
        C::PostgresForUpdate => {
            in_a_database!(opening, sqlx::Postgres)
                .table(FOR_UPDATE)
                .build_for_update()?
                .create_table()
                .await?
        }
        C::Mysql => {
            in_a_database!(opening, sqlx::MySql)
                .build()?
                .create_table()
                .await?
        }
        C::MysqlAdvisory => {
            in_a_database!(opening, sqlx::MySql)
                .table(ADVISORY)
                .build_advisory()?
                .create_table()
                .await?
        }
        C::MysqlForUpdate => {
            in_a_database!(opening, sqlx::MySql)
                .table(FOR_UPDATE)
                .build_for_update()?
                .create_table()
                .await?
        }
        C::Sqlite => {
            in_a_database!(opening, sqlx::Sqlite)
                .build()?
                .create_table()
                .await?
        }
        _ => {}
    }
    Ok(())
}

impl Opening {
    pub(super) fn url(&self) -> Result<&str> {
        match self.urls.as_slice() {
            [url] => Ok(url),
            urls => bail!(
                "{} is kept on one server, not on {}",
                self.contestant,
                urls.len()
            ),
        }
    }
}

#[async_trait]
impl Client for Ours {
    fn capabilities(&self) -> Option<Capabilities> {
        Some(self.0.capabilities())
    }

    async fn try_take(&self, name: &str) -> Result<Option<Box<dyn Held>>> {
        had(self.0.try_acquire(name).await)
    }

    async fn take(&self, name: &str, patience: Duration) -> Result<Option<Box<dyn Held>>> {
        had(self.0.acquire_within(name, patience).await)
    }

    fn note_token(&self, name: &str, token: FencingToken) {
        self.0.note_token(name, token);
    }
}

/// Whoever does not get it gets nothing, for whatever reason.
fn had(acquired: Result<Guard, LockError>) -> Result<Option<Box<dyn Held>>> {
    match acquired {
        Ok(guard) => Ok(Some(Box::new(guard))),
        Err(LockError::Invalid(error)) => Err(error.into()),
        Err(error) => {
            tracing::debug!(%error, "no lock");
            Ok(None)
        }
    }
}

#[async_trait]
impl Held for Guard {
    fn token(&self) -> Option<FencingToken> {
        Some(Guard::token(self))
    }

    async fn is_lost(&mut self) {
        let _ = self.run(|_| std::future::pending::<()>()).await;
    }

    async fn give_back(self: Box<Self>) {
        let _ = self.release().await;
    }
}
