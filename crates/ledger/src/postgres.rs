//! The ledger on PostgreSQL.

mod audit_pools;
mod batches;
mod claims;
mod connections;
mod doubt;
mod event_rows;
mod full_disk;
mod inspection;
mod migrating;
mod new_carts;
mod notes;
mod payments;
mod place;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod pools;
mod probe;
mod reach;
mod sale_rows;
mod segments;
mod session;
mod step_rows;

#[path = "store/acts.rs"]
mod acts;
#[path = "store/archive.rs"]
mod archive;
#[path = "store/audits.rs"]
mod audits;
#[path = "store/carts.rs"]
mod carts;
#[path = "store/drops.rs"]
mod drops;
#[path = "store/events.rs"]
mod events;
#[path = "store/items.rs"]
mod items;
#[path = "store/leases.rs"]
mod leases;
#[path = "store/life.rs"]
mod life;
#[path = "store/listing.rs"]
mod listing;
#[path = "store/processes.rs"]
mod processes;
#[path = "store/reading.rs"]
mod reading;
#[path = "store/recording.rs"]
mod recording;
#[path = "store/refunds.rs"]
mod refunds;
#[path = "store/repair.rs"]
mod repair;
#[path = "store/since.rs"]
mod since;
#[path = "store/sinks.rs"]
mod sinks;
#[path = "store/steps.rs"]
mod steps;
#[path = "store/stock.rs"]
mod stock;
#[path = "store/totals.rs"]
mod totals;
#[path = "store/webhooks.rs"]
mod webhooks;

use std::{str::FromStr, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{
    PgConnection, PgPool, Postgres,
    pool::PoolConnection,
    postgres::{PgArguments, PgConnectOptions, PgQueryResult, PgRow},
};
use uuid::Uuid;

use self::{
    probe::Probe,
    session::{Limits, Plans},
};
use crate::{
    DatabaseReport, Ledger, LedgerError, PoolSettings, StatementLimits, convert::timestamp,
    transaction::Transact,
};
pub(crate) use doubt::raise as doubt_connections;
pub(crate) use full_disk::remember as remember_full_disk;

/// Times leave the database as milliseconds since 1970, the unit of the whole engine.
macro_rules! item_columns {
    () => {
        "id, title, stock, price, new_price, currency, limit_per_buyer, segments::bigint, hold_seconds, max_hold_seconds, max_per_order, waves::text AS waves, durability, \
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
        concat!(
            $crate::columns::plain_order_columns!(),
            ", segment::bigint, attempt::bigint, (extract(epoch FROM created_at) * 1000)::bigint AS created_ms, \
             (extract(epoch FROM expires_at) * 1000)::bigint AS expires_ms, \
             (SELECT cart FROM cart_lines WHERE order_id = id) AS cart"
        )
    };
}

macro_rules! cart_columns {
    () => {
        "id, buyer, state, amount, price, is_checked, currency, (extract(epoch FROM deadline) * 1000)::bigint AS deadline_ms, \
         (extract(epoch FROM expires_at) * 1000)::bigint AS expires_ms, payment, refusal, refused_item, version"
    };
}

macro_rules! transfer_columns {
    () => {
        "id, item, from_segment::bigint, to_segment::bigint, quantity, moved, state, (extract(epoch FROM since) * 1000)::bigint AS since_ms"
    };
}

/// Whether money of the payment `owed` is due because its refund has failed. While its order or cart
/// is still paid for, or was when a drop deleted it, nothing is; while that is `refund_due`, it is
/// listed itself. The limits keep PostgreSQL from hashing whole tables.
macro_rules! is_owed {
    () => {
        "NOT (owed.is_settled AND owed.returned_at IS NULL) \
         AND (SELECT orders.id FROM orders WHERE orders.id = owed.order_id AND orders.payment = owed.id AND orders.state <> 'refunded' LIMIT 1) IS NULL \
         AND (SELECT carts.id FROM carts WHERE carts.id = owed.order_id AND carts.payment = owed.id AND carts.state <> 'refunded' LIMIT 1) IS NULL"
    };
}

/// Whether the entry of a failed refund tells of money that is due.
macro_rules! refund_failed_is_due {
    () => {
        concat!(
            "(SELECT owed.id FROM payments AS owed WHERE owed.id = journal.after ->> 'payment' AND owed.due_refund = journal.after ->> 'refund' AND ",
            is_owed!(),
            " LIMIT 1) IS NOT NULL"
        )
    };
}

/// Inserts the events of `$1` to `$7`, as [`bind_events`] binds them: one statement with the change
/// that they tell of, so that events need no round trip. It ends with the `FROM` clause.
macro_rules! insert_events {
    () => {
        "INSERT INTO events (at, item, kind, data, orders) \
         SELECT to_timestamp($1::double precision / 1000), item, kind, data::jsonb, substring($7::bytea FROM first FOR bytes) \
         FROM UNNEST($2::text[], $3::text[], $4::text[], $5::integer[], $6::integer[]) AS new (item, kind, data, first, bytes)"
    };
}

macro_rules! bind_events {
    ($query:expr, $events:expr) => {
        $query
            .bind(jiff::Timestamp::now().as_millisecond())
            .bind($events.items)
            .bind($events.kinds)
            .bind($events.data)
            .bind($events.first)
            .bind($events.bytes)
            .bind($events.orders)
    };
}

/// Binds rows of these values: an array for each column. A statement reads them by `UNNEST`.
macro_rules! bind_rows {
    ($query:expr, $rows:expr, |$row:ident| ($($value:expr),+ $(,)?)) => {
        $query$(.bind($crate::convert::column($rows, |$row| $value)))+
    };
}

use {bind_events, bind_rows};

/// The statements of `sql/postgres/`, a module for each file.
mod sql {
    include!(concat!(env!("OUT_DIR"), "/sql_postgres.rs"));
}

/// How long a step of an order waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);

/// Connections for lists, opened when they are needed. Lists get no others, so however many are
/// read, orders and recorders keep theirs.
const LIST_CONNECTIONS: u32 = 2;
const LIST_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Connections for the walks of audits, which read all orders of an item. Opened when they are
/// needed. The audits of the reconciler have two at most, its archives one, and the last is for walks
/// that are asked for.
const AUDIT_CONNECTIONS: u32 = 4;
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
    /// For the connection of migrations, which has limits of its own.
    options: PgConnectOptions,
    limits: StatementLimits,
}

impl PostgresLedger {
    pub(crate) async fn connect(url: &str, settings: PoolSettings) -> Result<Self, LedgerError> {
        // `sqlx` sends a setting for floats in the first message, which poolers refuse. The ledger
        // has no floats.
        let options = PgConnectOptions::from_str(url)?
            .application_name("stockade")
            .extra_float_digits(None::<i8>);
        let acquire_timeout = settings.acquire_timeout.unwrap_or(ACQUIRE_TIMEOUT);
        let limits = settings.limits;
        let [short, long] = [limits.statement, limits.long_statement].map(|statement| Limits {
            statement: Some(statement),
            lock: Some(limits.lock),
        });
        let pool = |connections, plans, limits| {
            connections::pool(connections, plans, limits).acquire_timeout(acquire_timeout)
        };
        let lists = pool(LIST_CONNECTIONS, Plans::ForPages, long)
            .idle_timeout(LIST_IDLE_TIMEOUT)
            .connect_lazy_with(options.clone());
        let readers = reading_connections(settings.connections);
        let reads = pool(readers, Plans::ByIndex, short)
            .idle_timeout(LIST_IDLE_TIMEOUT)
            .connect_lazy_with(options.clone());
        let audits = pool(AUDIT_CONNECTIONS, Plans::ByIndex, long)
            .idle_timeout(LIST_IDLE_TIMEOUT)
            .acquire_timeout(AUDIT_ACQUIRE_TIMEOUT)
            .connect_lazy_with(options.clone());
        let probe = Probe::new(options.clone(), acquire_timeout);
        if let Err(error) = reach::check(&options, acquire_timeout).await {
            return Err(probe.reason(error).await);
        }
        let pool = pool(settings.connections, Plans::ByIndex, short)
            .connect_with(options.clone())
            .await?;
        warn_without_fsync(&pool).await?;
        Ok(Self {
            pool,
            reads,
            lists,
            audits,
            probe,
            options,
            limits,
        })
    }
}

/// How many connections to PostgreSQL a ledger opens with so many for its steps, at most. Before
/// them, its start opens two, which it closes.
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

// The files of `store/` are the same for both databases. They know theirs by these names, each of
// which stands in `sqlite.rs`, too.
type Store = PostgresLedger;
type Pool = PgPool;
type Connection = PgConnection;
type QueryResult = PgQueryResult;
type Transaction = sqlx::Transaction<'static, Postgres>;
type Query<'q> = sqlx::query::Query<'q, Postgres, PgArguments>;
type QueryAs<'q, T> = sqlx::query::QueryAs<'q, Postgres, T, PgArguments>;
type Row = PgRow;

/// Whether there is one writer at a time, so that a statement which may have nothing to change looks
/// before it takes that place.
const HAS_ONE_WRITER: bool = false;

/// What a creation of a webhook locks before it counts the others.
const WEBHOOKS_LOCK: Option<&str> = Some(sql::locks::WEBHOOKS);

/// What deletes the counts of a process that were kept: the statement that keeps them.
const KEPT_COUNTS: Option<&str> = None;

/// A transaction that changes rows.
async fn begin(store: &Store) -> Result<Transaction, LedgerError> {
    connections::begin(&store.pool).await
}

/// A connection for one statement that changes rows.
async fn lend(store: &Store) -> Result<PoolConnection<Postgres>, LedgerError> {
    connections::lend(&store.pool).await
}

/// The pool for reads of a step. Look-ups and readers of events have `reads`.
fn step_reads(store: &Store) -> &Pool {
    &store.pool
}

/// A transaction whose statements all read one snapshot.
async fn snapshot(pool: &Pool) -> Result<Transaction, LedgerError> {
    let begun = pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    Ok(begun.await?)
}

/// The present as the last parameter of a statement. PostgreSQL has no such parameter: its
/// statements ask its own clock.
fn with_now(query: Query<'_>) -> Query<'_> {
    query
}

/// A list as one value of a statement: an array. That of SQLite is a text, which may fail.
fn list<T>(values: impl IntoIterator<Item = T>) -> Result<Vec<T>, LedgerError> {
    Ok(values.into_iter().collect())
}

/// An id among the values of [`bind_rows`].
fn id_value(id: Uuid) -> Uuid {
    id
}

/// [`list`] of ids.
fn id_list(ids: impl IntoIterator<Item = Uuid>) -> Result<Vec<Uuid>, LedgerError> {
    list(ids)
}

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
        migrating::run(&self.options, self.limits).await
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
    use std::time::Duration;

    use domain::{ItemId, OrderId};
    use sqlx::{Connection, PgConnection};

    use super::{PostgresLedger, postgres_connections};
    use crate::{
        Drops, Ledger, LedgerError, Listing, OrderLife, PoolSettings, Reading, SaleTable,
        StatementLimits, TimeLimit,
    };

    #[test]
    fn every_pool_and_the_probe_count_as_connections() {
        assert_eq!(postgres_connections(10), 10 + 5 + 2 + 4 + 1);
        assert_eq!(postgres_connections(1), 1 + 1 + 2 + 4 + 1);
    }

    const BRIEF: Duration = Duration::from_millis(300);

    /// A ledger on a new database whose schema is up to date, with these limits.
    async fn limited(limits: StatementLimits) -> (String, PostgresLedger) {
        let url = testkit::postgres_database().await;
        let patient = PostgresLedger::connect(&url, PoolSettings::patient(1));
        patient.await.unwrap().migrate().await.unwrap();
        let settings = PoolSettings {
            limits,
            ..PoolSettings::patient(1)
        };
        let ledger = PostgresLedger::connect(&url, settings).await.unwrap();
        (url, ledger)
    }

    fn is_ended_by(error: &LedgerError, expected: TimeLimit) -> bool {
        matches!(error, LedgerError::TimedOut { limit, .. } if *limit == expected)
            && error.proves_unchanged()
            && error.is_retryable()
            && !error.is_of_all()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_locked_table_ends_the_statements_of_every_pool_and_leaves_their_connections() {
        let limits = StatementLimits {
            lock: BRIEF,
            ..PoolSettings::patient(1).limits
        };
        let (url, ledger) = limited(limits).await;
        let (vase, order): (ItemId, _) = ("vase".parse().unwrap(), OrderId::from_bytes([1; 16]));
        let ask = async || {
            [
                ("steps", ledger.order(order).await.map(drop)),
                ("look-ups", ledger.look_up_order(order).await.map(drop)),
                (
                    "lists",
                    ledger
                        .list_item_orders(&vase, None, None, 9)
                        .await
                        .map(drop),
                ),
                (
                    "exports",
                    ledger
                        .export_page(&vase, SaleTable::Orders, None, 9)
                        .await
                        .map(drop),
                ),
                ("audits", ledger.totals(&vase).await.map(drop)),
            ]
        };
        let mut other = PgConnection::connect(&url).await.unwrap();
        let mut lock = other.begin().await.unwrap();
        sqlx::raw_sql("LOCK TABLE items, orders IN ACCESS EXCLUSIVE MODE")
            .execute(&mut *lock)
            .await
            .unwrap();
        // Twice: each pool has one connection, or two, and must have it after the first error.
        for _ in 0..2 {
            for (pool, asked) in ask().await {
                let error = asked.unwrap_err();
                assert!(is_ended_by(&error, TimeLimit::Lock), "{pool}: {error:?}");
            }
        }
        lock.rollback().await.unwrap();
        for (pool, asked) in ask().await {
            assert!(asked.is_ok(), "{pool}: {asked:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_statement_that_takes_too_long_is_ended_and_leaves_its_connection() {
        let limits = StatementLimits {
            statement: BRIEF,
            long_statement: BRIEF,
            ..PoolSettings::patient(1).limits
        };
        let (_, ledger) = limited(limits).await;
        for (name, pool) in [
            ("steps", &ledger.pool),
            ("look-ups", &ledger.reads),
            ("lists", &ledger.lists),
            ("audits", &ledger.audits),
        ] {
            for _ in 0..3 {
                let slept = sqlx::query("SELECT pg_sleep(3600)").execute(pool).await;
                let error = LedgerError::from(slept.unwrap_err());
                assert!(
                    is_ended_by(&error, TimeLimit::Statement),
                    "{name}: {error:?}"
                );
            }
            let one = sqlx::query_scalar::<_, i32>("SELECT 1").fetch_one(pool);
            assert_eq!(one.await.unwrap(), 1, "{name}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_pool_has_the_limits_that_were_set() {
        let limits = StatementLimits {
            statement: Duration::from_millis(31_001),
            long_statement: Duration::from_millis(601_002),
            lock: Duration::from_millis(5_003),
        };
        let (_, ledger) = limited(limits).await;
        for (name, pool, statement) in [
            ("steps", &ledger.pool, "31001ms"),
            ("look-ups", &ledger.reads, "31001ms"),
            ("lists", &ledger.lists, "601002ms"),
            ("audits", &ledger.audits, "601002ms"),
        ] {
            let mut connection = pool.acquire().await.unwrap();
            for (setting, expected) in
                [("statement_timeout", statement), ("lock_timeout", "5003ms")]
            {
                let show = sqlx::AssertSqlSafe(format!("SHOW {setting}"));
                let shown = sqlx::query_scalar::<_, String>(show).fetch_one(&mut *connection);
                assert_eq!(shown.await.unwrap(), expected, "{name}: {setting}");
            }
        }
    }

    /// A list may take longer than a step of an order.
    #[tokio::test(flavor = "multi_thread")]
    async fn only_lists_exports_and_audits_have_the_long_limit() {
        let limits = StatementLimits {
            statement: BRIEF,
            ..PoolSettings::patient(1).limits
        };
        let (_, ledger) = limited(limits).await;
        for (pool, is_long) in [
            (&ledger.pool, false),
            (&ledger.reads, false),
            (&ledger.lists, true),
            (&ledger.audits, true),
        ] {
            let slept = sqlx::query("SELECT pg_sleep(0.6)").execute(pool).await;
            assert_eq!(slept.is_ok(), is_long, "{slept:?}");
        }
    }

    /// A migration has limits of its own: a short limit of statements does not end it, and it waits
    /// for a table by trying again.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_migration_is_tried_again_until_it_has_its_table() {
        let url = testkit::postgres_database().await;
        let settings = PoolSettings {
            limits: StatementLimits {
                statement: testbed::timeout(),
                lock: BRIEF,
                ..PoolSettings::patient(1).limits
            },
            ..PoolSettings::patient(1)
        };
        let ledger = PostgresLedger::connect(&url, settings).await.unwrap();
        ledger.migrate().await.unwrap();
        // One migration is missing again.
        let mut other = PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(
            "DELETE FROM _sqlx_migrations WHERE version = 20261121000020; DROP INDEX orders_refund_due; DROP INDEX journal_unmatched_payments",
        )
        .execute(&mut other)
        .await
        .unwrap();
        let mut lock = other.begin().await.unwrap();
        sqlx::raw_sql("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
            .execute(&mut *lock)
            .await
            .unwrap();
        let migrated = async { ledger.migrate().await };
        let unlocked = async {
            tokio::time::sleep(BRIEF * 2).await;
            lock.rollback().await
        };
        let (migrated, unlocked) = tokio::join!(migrated, unlocked);
        unlocked.unwrap();
        migrated.unwrap();
        assert!(ledger.missing_migrations().await.unwrap().is_empty());
    }
}
