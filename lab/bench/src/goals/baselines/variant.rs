//! The variants that P9 compares.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use async_trait::async_trait;
use rand::random_range;
use sqlx::{PgPool, postgres::PgPoolOptions};
use testbed::{Postgres, Redis};
use tokio::time::sleep;

use super::{batches::Batches, redlock, row, script, set_nx, stockade::Stockade};
use crate::goals::{crowd::Reply, lock::Nodes, servers};

/// One way to sell single units.
#[async_trait]
pub trait Variant: Send + Sync + 'static {
    /// One order.
    async fn buy(&self, buyer: u64) -> Result<Reply>;

    /// Makes buyers that wait for a lock give up. Otherwise a contended lock would delay the end of
    /// a run by minutes.
    fn close(&self) {}

    /// Compares the stored state with the accepted orders. Returns drift and oversold units.
    async fn audit(&self, stock: u64, accepted: u64) -> Result<(i64, u64)>;

    /// Releases its resources.
    async fn end(&self) -> Result<()> {
        Ok(())
    }
}

/// Drift and oversold units, from the units left, the units of recorded orders, the stock and the
/// accepted orders.
pub fn judge(stock: u64, left: i64, sold: i64, accepted: u64) -> Result<(i64, u64)> {
    let (stock, accepted) = (i64::try_from(stock)?, i64::try_from(accepted)?);
    Ok((
        (stock - left - sold).abs() + (sold - accepted).abs(),
        u64::try_from(sold - stock).unwrap_or(0),
    ))
}

/// Where a variant stores its orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    InRedis,
    InPostgres,
}

/// All variants. Each has one tuning number, whose meaning depends on the variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Accepted,
    Recorded,
    SetNx,
    SegmentLocks,
    Redlock,
    Rslock,
    ScriptPool,
    ScriptShared,
    ForUpdate,
    Advisory,
    CompareAndSet,
    Conditional,
    Statement,
    Batches,
}

const PAUSES_MS: &[u64] = &[1, 0, 2, 5, 10, 20, 50];
const CONNECTIONS: &[u64] = &[16, 1, 4, 64];

impl Kind {
    /// All variants except Stockade, the goal's own baseline first.
    pub const BASELINES: [Self; 12] = [
        Self::SetNx,
        Self::SegmentLocks,
        Self::Redlock,
        Self::Rslock,
        Self::ScriptPool,
        Self::ScriptShared,
        Self::ForUpdate,
        Self::Advisory,
        Self::CompareAndSet,
        Self::Conditional,
        Self::Statement,
        Self::Batches,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "Stockade, accepted",
            Self::Recorded => "Stockade, recorded",
            Self::SetNx => "SET NX PX lock per order",
            Self::SegmentLocks => "16 segment locks",
            Self::Redlock => "Redlock per order (Stockade's, 5 nodes)",
            Self::Rslock => "Redlock per order (rslock, 5 nodes)",
            Self::ScriptPool => "one EVALSHA per order, pool",
            Self::ScriptShared => "one EVALSHA per order, one multiplexed connection",
            Self::ForUpdate => "SELECT FOR UPDATE per order",
            Self::Advisory => "advisory lock per order",
            Self::CompareAndSet => "version compare-and-set with retry",
            Self::Conditional => "conditional UPDATE + INSERT in a transaction",
            Self::Statement => "conditional UPDATE + INSERT in one statement",
            Self::Batches => "natural batches straight into PostgreSQL",
        }
    }

    pub const fn kept(self) -> Kept {
        match self {
            Self::Accepted
            | Self::SetNx
            | Self::SegmentLocks
            | Self::Redlock
            | Self::Rslock
            | Self::ScriptPool
            | Self::ScriptShared => Kept::InRedis,
            Self::Recorded
            | Self::ForUpdate
            | Self::Advisory
            | Self::CompareAndSet
            | Self::Conditional
            | Self::Statement
            | Self::Batches => Kept::InPostgres,
        }
    }

    /// Tuning numbers to try; the first is the default.
    pub const fn tunings(self) -> &'static [u64] {
        match self {
            Self::Accepted => &[1, 2],
            Self::Recorded => &[1, 2, 4, 8],
            Self::SetNx | Self::SegmentLocks => PAUSES_MS,
            Self::Redlock => &[100, 10, 30],
            Self::Rslock => &[10, 2, 5, 20, 50],
            Self::ScriptPool => &[64, 16, 256],
            Self::ScriptShared => &[1],
            Self::ForUpdate
            | Self::Advisory
            | Self::CompareAndSet
            | Self::Conditional
            | Self::Statement => CONNECTIONS,
            Self::Batches => &[1, 2],
        }
    }

    /// Factor of the run's duration: slow variants sell only a few dozen units per second.
    pub const fn times(self) -> u32 {
        match self {
            Self::Redlock => 4,
            _ => 1,
        }
    }

    /// Description of the setting.
    pub fn setting(self, tuning: u64) -> String {
        let (redis, postgres) = (servers::REDIS, servers::POSTGRES);
        match self {
            Self::Accepted => format!("{tuning} segments, limit 1, {redis}"),
            Self::Recorded => {
                format!("{tuning} segments, limit 1, recorder with 2 workers, {redis}, {postgres}")
            }
            Self::SetNx | Self::SegmentLocks if tuning == 0 => {
                format!("retries immediately, {redis}")
            }
            Self::SetNx | Self::SegmentLocks => format!("retries after {tuning} ms, {redis}"),
            Self::Redlock => {
                format!("woken by a release, or retries after {tuning} ms, {redis}")
            }
            Self::Rslock => format!("retries after at most {tuning} ms, {redis}"),
            Self::ScriptPool => format!("{tuning} connections, {redis}"),
            Self::ScriptShared => redis.into(),
            Self::Batches => format!("{tuning} batches at a time, {postgres}"),
            _ => format!("{tuning} connections, {postgres}"),
        }
    }
}

/// Opens a variant with this stock, on emptied servers.
pub async fn open(env: &TestEnv, kind: Kind, tuning: u64, stock: u64) -> Result<Arc<dyn Variant>> {
    let pause = Pause {
        most: Duration::from_millis(tuning),
    };
    Ok(match kind {
        Kind::Accepted => Arc::new(Stockade::accepted(u16::try_from(tuning)?, stock).await?),
        Kind::Recorded => Arc::new(Stockade::recorded(env, u16::try_from(tuning)?, stock).await?),
        Kind::SetNx => {
            Arc::new(set_nx::Locked::open(&env.emptied().await?, 1, pause, stock).await?)
        }
        Kind::SegmentLocks => {
            Arc::new(set_nx::Locked::open(&env.emptied().await?, 16, pause, stock).await?)
        }
        Kind::Redlock => Arc::new(redlock::Ours::open(env, pause.most, stock).await?),
        Kind::Rslock => Arc::new(redlock::Theirs::open(env, pause, stock).await?),
        Kind::ScriptPool => Arc::new(
            script::Pooled::open(&env.emptied().await?, usize::try_from(tuning)?, stock).await?,
        ),
        Kind::ScriptShared => Arc::new(script::Shared::open(&env.emptied().await?, stock).await?),
        Kind::ForUpdate => {
            Arc::new(row::Rows::open(env, row::Step::ForUpdate, tuning, stock).await?)
        }
        Kind::Advisory => Arc::new(row::Rows::open(env, row::Step::Advisory, tuning, stock).await?),
        Kind::CompareAndSet => {
            Arc::new(row::Rows::open(env, row::Step::CompareAndSet, tuning, stock).await?)
        }
        Kind::Conditional => {
            Arc::new(row::Rows::open(env, row::Step::Conditional, tuning, stock).await?)
        }
        Kind::Statement => {
            Arc::new(row::Rows::open(env, row::Step::Statement, tuning, stock).await?)
        }
        Kind::Batches => Arc::new(Batches::open(env, tuning, stock).await?),
    })
}

/// The servers of the baselines. Stockade gets new servers for each run.
pub struct TestEnv {
    redis: Redis,
    pub nodes: Nodes,
    pub postgres: Postgres,
    databases: AtomicU64,
}

const TABLES: &str = "\
    CREATE TABLE items (id bigint PRIMARY KEY, stock bigint NOT NULL, version bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50); \
    CREATE TABLE orders (id uuid PRIMARY KEY, item bigint NOT NULL, buyer text NOT NULL, quantity bigint NOT NULL)";

impl TestEnv {
    pub async fn open() -> Result<Self> {
        let (redis, nodes, postgres) = tokio::try_join!(
            async { Ok(Redis::start().await?) },
            Nodes::start(),
            servers::postgres()
        )?;
        let env = Self {
            redis,
            nodes,
            postgres,
            databases: AtomicU64::default(),
        };
        let pool = PgPool::connect(&env.postgres.create_database("baselines").await?).await?;
        sqlx::raw_sql(TABLES).execute(&pool).await?;
        pool.close().await;
        Ok(env)
    }

    /// URL of the baselines' Redis, after FLUSHALL.
    pub async fn emptied(&self) -> Result<String> {
        let mut connection = servers::connect(&self.redis.url()).await?;
        redis::cmd("FLUSHALL")
            .query_async::<()>(&mut connection)
            .await?;
        Ok(self.redis.url())
    }

    /// Empties the baselines' tables, inserts one item, and opens all connections of the pool.
    pub async fn tables(&self, connections: u64, stock: u64) -> Result<PgPool> {
        let connections = u32::try_from(connections)?;
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .min_connections(connections);
        let pool = pool
            .test_before_acquire(false)
            .connect(&self.postgres.url("baselines"))
            .await?;
        sqlx::raw_sql("TRUNCATE items, orders")
            .execute(&pool)
            .await?;
        sqlx::query("INSERT INTO items (id, stock) VALUES (1, $1)")
            .bind(i64::try_from(stock)?)
            .execute(&pool)
            .await?;
        Ok(pool)
    }

    /// An unused name for a database.
    pub fn database(&self) -> String {
        format!(
            "stockade_{}",
            self.databases.fetch_add(1, Ordering::Relaxed)
        )
    }
}

/// Audits the tables.
pub async fn audit_tables(pool: &PgPool, stock: u64, accepted: u64) -> Result<(i64, u64)> {
    let left: i64 = sqlx::query_scalar("SELECT stock FROM items WHERE id = 1")
        .fetch_one(pool)
        .await?;
    let sold: i64 = sqlx::query_scalar("SELECT coalesce(sum(quantity), 0)::bigint FROM orders")
        .fetch_one(pool)
        .await?;
    judge(stock, left, sold, accepted)
}

/// Pause of a buyer that did not get a lock.
#[derive(Debug, Clone, Copy)]
pub struct Pause {
    pub most: Duration,
}

impl Pause {
    /// Sleeps 0.5 to 1.5 times the pause, so that buyers do not stay in step.
    pub async fn around(self) {
        if self.most.is_zero() {
            tokio::task::yield_now().await;
        } else {
            sleep(self.most.mul_f64(random_range(0.5..1.5))).await;
        }
    }

    /// Sleeps up to the pause.
    pub async fn up_to(self) {
        sleep(self.most.mul_f64(random_range(0.0..1.0))).await;
    }
}

/// Flag that makes waiting buyers give up.
#[derive(Debug, Default)]
pub struct Doors(AtomicBool);

impl Doors {
    pub fn close(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn are_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn a_lost_unit_is_drift_and_an_extra_unit_is_oversold() {
        assert_eq!(judge(10, 4, 6, 6).unwrap(), (0, 0));
        assert_eq!(
            judge(10, 5, 6, 6).unwrap(),
            (1, 0),
            "an update of the counter was lost"
        );
        assert_eq!(
            judge(10, 4, 6, 7).unwrap(),
            (1, 0),
            "an accepted order is missing from the table"
        );
        assert_eq!(judge(10, -1, 11, 11).unwrap(), (0, 1));
    }
}
