//! A way to sell, and all that are compared.

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
use crate::goals::{crowd::Told, lock::Nodes, servers};

/// One way to sell one unit to whoever asks.
#[async_trait]
pub trait Way: Send + Sync + 'static {
    /// One order.
    async fn buy(&self, buyer: u64) -> Result<Told>;

    /// Whoever waits for a lock from now on goes away without: a crowd that is in its own way would otherwise be waited for for minutes.
    fn close(&self) {}

    /// What is kept, held against what buyers were told: what neither explains, and units beyond the stock.
    async fn audit(&self, stock: u64, accepted: u64) -> Result<(i64, u64)>;

    /// Gives back what it has taken.
    async fn end(&self) -> Result<()> {
        Ok(())
    }
}

/// Units that are left, and units that orders were written for, held against the stock and what buyers were told.
pub fn judge(stock: u64, left: i64, sold: i64, accepted: u64) -> Result<(i64, u64)> {
    let (stock, accepted) = (i64::try_from(stock)?, i64::try_from(accepted)?);
    Ok((
        (stock - left - sold).abs() + (sold - accepted).abs(),
        u64::try_from(sold - stock).unwrap_or(0),
    ))
}

/// Where a way keeps what it has sold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    InRedis,
    InPostgres,
}

/// All ways. What its one number means is the way's own.
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
    /// Everybody but Stockade, the goal's own first.
    pub const RIVALS: [Self; 12] = [
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

    /// What is tried. The first is as good a guess as any.
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

    /// So many times as long as others it is measured: some ways sell a few dozen in a second.
    pub const fn times(self) -> u32 {
        match self {
            Self::Redlock => 4,
            _ => 1,
        }
    }

    /// In words.
    pub fn setting(self, tuning: u64) -> String {
        let (redis, postgres) = (servers::REDIS, servers::POSTGRES);
        match self {
            Self::Accepted => format!("{tuning} segments, limit 1, {redis}"),
            Self::Recorded => {
                format!("{tuning} segments, limit 1, recorder with 2 workers, {redis}, {postgres}")
            }
            Self::SetNx | Self::SegmentLocks if tuning == 0 => {
                format!("asks again at once, {redis}")
            }
            Self::SetNx | Self::SegmentLocks => format!("asks again after {tuning} ms, {redis}"),
            Self::Redlock => {
                format!("woken by a release, or asks again after {tuning} ms, {redis}")
            }
            Self::Rslock => format!("asks again after at most {tuning} ms, {redis}"),
            Self::ScriptPool => format!("{tuning} connections, {redis}"),
            Self::ScriptShared => redis.into(),
            Self::Batches => format!("{tuning} batches at a time, {postgres}"),
            _ => format!("{tuning} connections, {postgres}"),
        }
    }
}

/// Opens it with so much stock, on servers that hold nothing else of it.
pub async fn open(place: &Place, kind: Kind, tuning: u64, stock: u64) -> Result<Arc<dyn Way>> {
    let pause = Pause {
        most: Duration::from_millis(tuning),
    };
    Ok(match kind {
        Kind::Accepted => Arc::new(Stockade::accepted(u16::try_from(tuning)?, stock).await?),
        Kind::Recorded => Arc::new(Stockade::recorded(place, u16::try_from(tuning)?, stock).await?),
        Kind::SetNx => {
            Arc::new(set_nx::Locked::open(&place.emptied().await?, 1, pause, stock).await?)
        }
        Kind::SegmentLocks => {
            Arc::new(set_nx::Locked::open(&place.emptied().await?, 16, pause, stock).await?)
        }
        Kind::Redlock => Arc::new(redlock::Ours::open(place, pause.most, stock).await?),
        Kind::Rslock => Arc::new(redlock::Theirs::open(place, pause, stock).await?),
        Kind::ScriptPool => Arc::new(
            script::Pooled::open(&place.emptied().await?, usize::try_from(tuning)?, stock).await?,
        ),
        Kind::ScriptShared => Arc::new(script::Shared::open(&place.emptied().await?, stock).await?),
        Kind::ForUpdate => {
            Arc::new(row::Rows::open(place, row::Step::ForUpdate, tuning, stock).await?)
        }
        Kind::Advisory => {
            Arc::new(row::Rows::open(place, row::Step::Advisory, tuning, stock).await?)
        }
        Kind::CompareAndSet => {
            Arc::new(row::Rows::open(place, row::Step::CompareAndSet, tuning, stock).await?)
        }
        Kind::Conditional => {
            Arc::new(row::Rows::open(place, row::Step::Conditional, tuning, stock).await?)
        }
        Kind::Statement => {
            Arc::new(row::Rows::open(place, row::Step::Statement, tuning, stock).await?)
        }
        Kind::Batches => Arc::new(Batches::open(place, tuning, stock).await?),
    })
}

/// The servers of the others; what Stockade runs on is its own, and new each time.
pub struct Place {
    redis: Redis,
    pub nodes: Nodes,
    pub postgres: Postgres,
    databases: AtomicU64,
}

const TABLES: &str = "\
    CREATE TABLE items (id bigint PRIMARY KEY, stock bigint NOT NULL, version bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50); \
    CREATE TABLE orders (id uuid PRIMARY KEY, item bigint NOT NULL, buyer text NOT NULL, quantity bigint NOT NULL)";

impl Place {
    pub async fn open() -> Result<Self> {
        let (redis, nodes, postgres) = tokio::try_join!(
            async { Ok(Redis::start().await?) },
            Nodes::start(),
            servers::postgres()
        )?;
        let place = Self {
            redis,
            nodes,
            postgres,
            databases: AtomicU64::default(),
        };
        let pool = PgPool::connect(&place.postgres.create_database("rivals").await?).await?;
        sqlx::raw_sql(TABLES).execute(&pool).await?;
        pool.close().await;
        Ok(place)
    }

    /// The Redis of the others, with nothing in it.
    pub async fn emptied(&self) -> Result<String> {
        let mut connection = servers::connect(&self.redis.url()).await?;
        redis::cmd("FLUSHALL")
            .query_async::<()>(&mut connection)
            .await?;
        Ok(self.redis.url())
    }

    /// The tables of the others: one item, no orders, and so many connections, all of them made.
    pub async fn tables(&self, connections: u64, stock: u64) -> Result<PgPool> {
        let connections = u32::try_from(connections)?;
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .min_connections(connections);
        let pool = pool
            .test_before_acquire(false)
            .connect(&self.postgres.url("rivals"))
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

    /// A name that no database has had.
    pub fn database(&self) -> String {
        format!(
            "stockade_{}",
            self.databases.fetch_add(1, Ordering::Relaxed)
        )
    }
}

/// What the tables say.
pub async fn audit_tables(pool: &PgPool, stock: u64, accepted: u64) -> Result<(i64, u64)> {
    let left: i64 = sqlx::query_scalar("SELECT stock FROM items WHERE id = 1")
        .fetch_one(pool)
        .await?;
    let sold: i64 = sqlx::query_scalar("SELECT coalesce(sum(quantity), 0)::bigint FROM orders")
        .fetch_one(pool)
        .await?;
    judge(stock, left, sold, accepted)
}

/// How long somebody waits who did not get a lock.
#[derive(Debug, Clone, Copy)]
pub struct Pause {
    pub most: Duration,
}

impl Pause {
    /// About so long, so that a crowd does not stay in step.
    pub async fn around(self) {
        if self.most.is_zero() {
            tokio::task::yield_now().await;
        } else {
            sleep(self.most.mul_f64(random_range(0.5..1.5))).await;
        }
    }

    /// Up to so long.
    pub async fn up_to(self) {
        sleep(self.most.mul_f64(random_range(0.0..1.0))).await;
    }
}

/// Whether whoever waits shall go away.
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
    fn a_unit_that_is_lost_drifts_and_one_too_many_is_oversold() {
        assert_eq!(judge(10, 4, 6, 6).unwrap(), (0, 0));
        assert_eq!(
            judge(10, 5, 6, 6).unwrap(),
            (1, 0),
            "an update of the counter was lost"
        );
        assert_eq!(
            judge(10, 4, 6, 7).unwrap(),
            (1, 0),
            "somebody was told of a unit that nobody wrote down"
        );
        assert_eq!(judge(10, -1, 11, 11).unwrap(), (0, 1));
    }
}
