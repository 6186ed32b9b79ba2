//! The ledger on PostgreSQL.

mod archive;
mod carts;
mod events;
mod inspection;
mod items;
mod life;
mod listing;
mod processes;
mod purge;
mod reading;
mod recording;
mod repair;
mod sinks;
mod stock;
mod totals;
mod webhooks;

use std::{str::FromStr, time::Duration};

use async_trait::async_trait;
use sqlx::{
    Connection, PgPool, Postgres,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::{DatabaseReport, Ledger, LedgerError, PoolSettings, migrations, transaction::Transact};

/// Times leave the database as milliseconds since 1970, the unit of the whole engine.
macro_rules! item_columns {
    () => {
        "id, title, stock, price, currency, limit_per_buyer, segments::bigint, hold_seconds, max_hold_seconds, max_per_order, waves::text AS waves, durability, \
         CASE WHEN archived_at IS NULL THEN state ELSE 'archived' END AS state, epoch, version, \
         (extract(epoch FROM opens_at) * 1000)::bigint AS opens_ms, (extract(epoch FROM closes_at) * 1000)::bigint AS closes_ms"
    };
}

macro_rules! segment_columns {
    () => {
        "item, segment::bigint, allocated, available, held, confirmed, \"returning\", checkpoint, anchor, version, fence"
    };
}

macro_rules! order_columns {
    () => {
        "id, item, segment::bigint, buyer, quantity, state, (extract(epoch FROM created_at) * 1000)::bigint AS created_ms, \
         (extract(epoch FROM expires_at) * 1000)::bigint AS expires_ms, attempt::bigint, \
         payment, (SELECT cart FROM cart_lines WHERE order_id = id) AS cart, version"
    };
}

macro_rules! cart_columns {
    () => {
        "id, buyer, state, amount, currency, (extract(epoch FROM deadline) * 1000)::bigint AS deadline_ms, \
         (extract(epoch FROM expires_at) * 1000)::bigint AS expires_ms, payment, refusal, refused_item, version"
    };
}

macro_rules! transfer_columns {
    () => {
        "id, item, from_segment::bigint, to_segment::bigint, quantity, moved, state, (extract(epoch FROM since) * 1000)::bigint AS since_ms"
    };
}
use {cart_columns, item_columns, order_columns, segment_columns, transfer_columns};

/// Connections that were idle for longer are pinged before use, because a restart of the server
/// kills all pooled connections. Pinging each time would cost one round trip per statement. A
/// connection that was used more recently may still fail, once.
const PING_AFTER_IDLE: Duration = Duration::from_secs(1);

/// Upper bound for a recorder that hangs inside a claim (a stopped process, a lost network), so
/// that it does not block its rows from all others.
const IDLE_IN_TRANSACTION_MS: &str = "10000";

/// Every statement that reads a growing table has an index. A sale fills and empties tables
/// quickly, and stale statistics would lead to full scans for each batch until the next ANALYZE,
/// and to plans that no test has covered.
const INDEX_PLANS: [(&str, &str); 2] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
];

/// With sequential scans disabled, a statement on a table without a fitting index gets an extreme
/// cost estimate. PostgreSQL would therefore compile it each time. That took half of the ledger's
/// processor time, for statements of a millisecond.
const WITHOUT_JIT: [(&str, &str); 1] = [("jit", "off")];

/// A page of a list begins at its key and ends after its rows. Statistics of a growing table, or of
/// none, suggest to sort the rest of the list for each page instead.
const PAGE_PLANS: [(&str, &str); 2] = [("enable_bitmapscan", "off"), ("enable_sort", "off")];

/// How long a step of an order waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);

/// Connections for lists, opened when they are needed. Lists get no others, so however many are
/// read, orders and recorders keep theirs.
const LIST_CONNECTIONS: u32 = 2;
const LIST_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Connections for the sums of audits, which read all orders of an item. Opened when they are needed.
const AUDIT_CONNECTIONS: u32 = 2;
/// Audits of many items wait for each other. None is in a hurry.
const AUDIT_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);

/// After waiting for a lock, a transaction must see what the previous holder has written.
const ISOLATION: [(&str, &str); 1] = [("default_transaction_isolation", "read committed")];

/// An acknowledged order must survive a crash of the server, so a commit waits for the disk. A role
/// or database may have a weaker setting. A stronger one (`remote_apply`) stays.
const WAIT_FOR_DISK: &str = "SELECT set_config('synchronous_commit', 'on', false) \
     WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')";

/// The ledger on PostgreSQL.
pub(crate) struct PostgresLedger {
    /// For steps of orders, recording, and the rounds of the reconciler.
    pool: PgPool,
    /// For looking up orders and carts, and for readers of events.
    reads: PgPool,
    lists: PgPool,
    audits: PgPool,
}

impl PostgresLedger {
    pub(crate) async fn connect(url: &str, settings: PoolSettings) -> Result<Self, LedgerError> {
        let options = PgConnectOptions::from_str(url)?
            .application_name("stockade")
            .options([(
                "idle_in_transaction_session_timeout",
                IDLE_IN_TRANSACTION_MS,
            )])
            .options(INDEX_PLANS)
            .options(WITHOUT_JIT)
            .options(ISOLATION);
        let acquire_timeout = settings.acquire_timeout.unwrap_or(ACQUIRE_TIMEOUT);
        let pool = |connections| pool(connections).acquire_timeout(acquire_timeout);
        let lists = pool(LIST_CONNECTIONS)
            .idle_timeout(LIST_IDLE_TIMEOUT)
            .connect_lazy_with(options.clone().options(PAGE_PLANS));
        let reads = pool(reading_connections(settings.connections))
            .idle_timeout(LIST_IDLE_TIMEOUT)
            .connect_lazy_with(options.clone());
        let audits = pool(AUDIT_CONNECTIONS)
            .idle_timeout(LIST_IDLE_TIMEOUT)
            .acquire_timeout(AUDIT_ACQUIRE_TIMEOUT)
            .connect_lazy_with(options.clone());
        let pool = pool(settings.connections).connect_with(options).await?;
        warn_without_fsync(&pool).await?;
        Ok(Self {
            pool,
            reads,
            lists,
            audits,
        })
    }
}

/// Connections for reads without a step: half as many as for steps. Opened when they are needed.
pub(crate) fn reading_connections(connections: u32) -> u32 {
    connections.div_ceil(2)
}

fn pool(connections: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections)
        .test_before_acquire(false)
        .after_connect(|connection, _| {
            Box::pin(async move {
                sqlx::query(WAIT_FOR_DISK).execute(connection).await?;
                Ok(())
            })
        })
        .before_acquire(|connection, meta| {
            Box::pin(async move {
                Ok(meta.idle_for < PING_AFTER_IDLE || connection.ping().await.is_ok())
            })
        })
}

/// Only the server's operator can change these settings.
async fn warn_without_fsync(pool: &PgPool) -> Result<(), LedgerError> {
    for setting in ["fsync", "full_page_writes"] {
        let value: String = sqlx::query_scalar("SELECT current_setting($1)")
            .bind(setting)
            .fetch_one(pool)
            .await?;
        if value == "off" {
            tracing::warn!(
                setting,
                "the ledger's server has this setting off: a crash of the server may lose acknowledged orders"
            );
        }
    }
    Ok(())
}

type Transaction = sqlx::Transaction<'static, Postgres>;

#[async_trait]
impl Transact for Transaction {
    async fn commit(self) -> Result<(), LedgerError> {
        Ok(Transaction::commit(self).await?)
    }

    async fn roll_back(self) {
        // If the connection is lost, so is the transaction.
        let _ = self.rollback().await;
    }
}

#[async_trait]
impl Ledger for PostgresLedger {
    async fn migrate(&self) -> Result<(), LedgerError> {
        // sqlx takes an advisory lock, so one of several processes migrates.
        Ok(migrations::postgres().run(&self.pool).await?)
    }

    async fn missing_migrations(&self) -> Result<Vec<i64>, LedgerError> {
        inspection::missing_migrations(&self.pool).await
    }

    async fn inspect(&self) -> Result<DatabaseReport, LedgerError> {
        inspection::report(&self.pool).await
    }

    async fn ping(&self) -> Result<(), LedgerError> {
        sqlx::query("SELECT 1").execute(&self.pool).await?;
        Ok(())
    }
}
