//! The ledger on PostgreSQL.

mod acts;
mod archive;
mod carts;
mod connections;
mod doubt;
mod events;
mod full_disk;
mod inspection;
mod items;
mod life;
mod listing;
mod probe;
mod processes;
mod purge;
mod reach;
mod reading;
mod recording;
mod refunds;
mod repair;
mod session;
mod sinks;
mod stock;
mod totals;
mod webhooks;

use std::{str::FromStr, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{PgPool, Postgres, postgres::PgConnectOptions};

use self::{probe::Probe, session::Plans};
use crate::{
    DatabaseReport, Ledger, LedgerError, PoolSettings, convert::timestamp, migrations,
    transaction::Transact,
};
pub(crate) use doubt::raise as doubt_connections;
pub(crate) use full_disk::remember as remember_full_disk;

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

/// The ledger on PostgreSQL.
pub(crate) struct PostgresLedger {
    /// For steps of orders, recording, and the rounds of the reconciler.
    pool: PgPool,
    /// For looking up orders and carts, and for readers of events.
    reads: PgPool,
    lists: PgPool,
    audits: PgPool,
    probe: Probe,
}

impl PostgresLedger {
    pub(crate) async fn connect(url: &str, settings: PoolSettings) -> Result<Self, LedgerError> {
        // `sqlx` sends a setting for floats in the first message, which poolers refuse. The ledger
        // has no floats.
        let options = PgConnectOptions::from_str(url)?
            .application_name("stockade")
            .extra_float_digits(None::<i8>);
        let acquire_timeout = settings.acquire_timeout.unwrap_or(ACQUIRE_TIMEOUT);
        let pool = |connections, plans| {
            connections::pool(connections, plans).acquire_timeout(acquire_timeout)
        };
        let lists = pool(LIST_CONNECTIONS, Plans::ForPages)
            .idle_timeout(LIST_IDLE_TIMEOUT)
            .connect_lazy_with(options.clone());
        let reads = pool(reading_connections(settings.connections), Plans::ByIndex)
            .idle_timeout(LIST_IDLE_TIMEOUT)
            .connect_lazy_with(options.clone());
        let audits = pool(AUDIT_CONNECTIONS, Plans::ByIndex)
            .idle_timeout(LIST_IDLE_TIMEOUT)
            .acquire_timeout(AUDIT_ACQUIRE_TIMEOUT)
            .connect_lazy_with(options.clone());
        let probe = Probe::new(options.clone(), acquire_timeout);
        if let Err(error) = reach::check(&options, acquire_timeout).await {
            return Err(probe.reason(error).await);
        }
        let pool = pool(settings.connections, Plans::ByIndex)
            .connect_with(options)
            .await?;
        warn_without_fsync(&pool).await?;
        Ok(Self {
            pool,
            reads,
            lists,
            audits,
            probe,
        })
    }
}

/// How many connections to PostgreSQL a ledger opens with so many for its steps, at most. Before them, its
/// start opens two, which it closes.
pub fn postgres_connections(steps: u32) -> u32 {
    const PROBE: u32 = 1;
    steps + reading_connections(steps) + LIST_CONNECTIONS + AUDIT_CONNECTIONS + PROBE
}

/// Connections for reads without a step: half as many as for steps. Opened when they are needed.
pub(crate) fn reading_connections(connections: u32) -> u32 {
    connections.div_ceil(2)
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
        Transaction::commit(self)
            .await
            .map_err(LedgerError::commit)?;
        full_disk::forget();
        Ok(())
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

    async fn time(&self) -> Result<Timestamp, LedgerError> {
        let ms = sqlx::query_scalar::<_, i64>(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint",
        );
        timestamp("now", ms.fetch_one(&self.pool).await?)
    }

    async fn check_writable(&self) -> Result<(), LedgerError> {
        self.probe.check().await
    }
}

#[cfg(test)]
mod tests {
    use super::postgres_connections;

    #[test]
    fn every_pool_and_the_probe_count_as_connections() {
        assert_eq!(postgres_connections(10), 10 + 5 + 2 + 2 + 1);
        assert_eq!(postgres_connections(1), 1 + 1 + 2 + 2 + 1);
    }
}
