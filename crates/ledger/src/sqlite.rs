//! The ledger on SQLite, embedded.
//!
//! SQLite allows one writer at a time. Within the process, one connection behind a mutex is the
//! writers' queue. Between processes it is `BEGIN IMMEDIATE`, which waits for the write lock before it
//! reads. A claim is therefore the write lock itself.

#![allow(
    clippy::duplicate_mod,
    reason = "the files of `store/` are compiled for each database"
)]

mod audit_pools;
mod batches;
mod claims;
mod event_rows;
mod inspection;
mod new_carts;
mod notes;
mod payments;
mod place;
mod probe;
mod sale_rows;
mod segments;
mod step_rows;
mod writer;

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

use std::{path::Path, str::FromStr, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{
    Connection as _, Sqlite, SqliteConnection, SqlitePool,
    sqlite::{
        SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions,
        SqliteQueryResult, SqliteRow, SqliteSynchronous,
    },
};
use uuid::Uuid;

use self::{
    probe::Probe,
    writer::{Lent, Transaction, Writer},
};
use crate::{
    DatabaseReport, Ledger, LedgerError, PoolSettings, convert::timestamp,
    error::answers::nothing_sent, migrations, postgres::reading_connections,
};

/// How long a writer waits for the write of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const OPEN_RETRY_INTERVAL: Duration = Duration::from_millis(20);

const SQLITE_BUSY: i32 = 5;

macro_rules! item_columns {
    () => {
        "id, title, stock, price, new_price, currency, limit_per_buyer, segments, hold_seconds, max_hold_seconds, max_per_order, waves, durability, \
         CASE WHEN archived_at IS NULL THEN state ELSE 'archived' END AS state, epoch, version, \
         opens_at AS opens_ms, closes_at AS closes_ms"
    };
}

macro_rules! segment_columns {
    () => {
        "item, segment, allocated, available, held, confirmed, \"returning\", checkpoint, anchor, version, fence"
    };
}

macro_rules! order_columns {
    () => {
        concat!(
            $crate::columns::plain_order_columns!(),
            ", segment, attempt, created_at AS created_ms, expires_at AS expires_ms, \
             (SELECT cart FROM cart_lines WHERE order_id = orders.id) AS cart"
        )
    };
}

macro_rules! cart_columns {
    () => {
        "id, buyer, state, amount, price, is_checked, currency, deadline AS deadline_ms, expires_at AS expires_ms, payment, refusal, refused_item, version"
    };
}

macro_rules! transfer_columns {
    () => {
        "id, item, from_segment, to_segment, quantity, moved, state, since AS since_ms"
    };
}

/// The time now, in milliseconds since 1970.
macro_rules! now_ms {
    () => {
        "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
    };
}

/// Whether money of the payment `owed` is due because its refund has failed. While its order or cart
/// is still paid for, or was when a drop deleted it, nothing is; while that is `refund_due`, it is
/// listed itself.
macro_rules! is_owed {
    () => {
        "NOT (owed.is_settled AND owed.returned_at IS NULL) \
         AND NOT EXISTS (SELECT 1 FROM orders WHERE orders.id = owed.order_id AND orders.payment = owed.id AND orders.state <> 'refunded') \
         AND NOT EXISTS (SELECT 1 FROM carts WHERE carts.id = owed.order_id AND carts.payment = owed.id AND carts.state <> 'refunded')"
    };
}

/// Whether the entry of a failed refund tells of money that is due.
macro_rules! refund_failed_is_due {
    () => {
        concat!(
            "EXISTS (SELECT 1 FROM payments AS owed WHERE owed.id = journal.after ->> 'payment' AND owed.due_refund = journal.after ->> 'refund' AND ",
            is_owed!(),
            ")"
        )
    };
}

/// Binds rows of these values, as one value. A statement reads them by `json_each`.
macro_rules! bind_rows {
    ($query:expr, $rows:expr, |$row:ident| ($($value:expr),+ $(,)?)) => {
        $query.bind($crate::sqlite::list($crate::convert::column(
            $rows,
            |$row| ($($value,)+),
        ))?)
    };
}

use bind_rows;

/// The statements of `sql/sqlite/`, a module for each file.
mod sql {
    include!(concat!(env!("OUT_DIR"), "/sql_sqlite.rs"));
}

/// Connections for lists, opened when they are needed.
const LIST_CONNECTIONS: u32 = 2;
/// Connections for the walks of audits, which read all orders of an item. Opened when they are
/// needed. The audits of the reconciler have two at most, its archives one, and the last is for walks
/// that are asked for.
const AUDIT_CONNECTIONS: u32 = 4;
/// Audits of many items wait for each other. None is in a hurry.
const LIST_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);

/// The ledger on SQLite.
pub(crate) struct SqliteLedger {
    readers: SqlitePool,
    /// For looking up orders and carts, and for readers of events: however many there are, steps
    /// keep their readers.
    reads: SqlitePool,
    /// For lists. However many are read, orders keep their readers.
    lists: SqlitePool,
    /// For the walks of audits.
    audits: SqlitePool,
    writer: Writer,
    probe: Probe,
}

impl SqliteLedger {
    pub(crate) async fn connect(url: &str, settings: PoolSettings) -> Result<Self, LedgerError> {
        let options = SqliteConnectOptions::from_str(url)?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // An acknowledged order survives the loss of power, not only of the process.
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(settings.limits.lock);
        if let Some(folder) = options
            .get_filename()
            .parent()
            .filter(|folder| *folder != Path::new(""))
        {
            std::fs::create_dir_all(folder).map_err(sqlx::Error::Io)?;
        }
        let acquire_timeout = settings.acquire_timeout.unwrap_or(settings.limits.lock);
        let pool = |connections| pool(connections).acquire_timeout(acquire_timeout);
        let writer = open(&options, acquire_timeout).await?;
        let probe = Probe::new(&options);
        let reads =
            pool(reading_connections(settings.connections)).connect_lazy_with(options.clone());
        let readers = pool(settings.connections)
            .connect_with(options.clone())
            .await?;
        let [lists, audits] = [LIST_CONNECTIONS, AUDIT_CONNECTIONS].map(|connections| {
            self::pool(connections)
                .acquire_timeout(LIST_ACQUIRE_TIMEOUT)
                .connect_lazy_with(options.clone())
        });
        Ok(Self {
            readers,
            reads,
            lists,
            audits,
            writer,
            probe,
        })
    }

    async fn write(&self) -> Result<Transaction, LedgerError> {
        self.writer.begin().await
    }
}

/// A pool that hands out no connection that is still counted as inside a transaction.
///
/// When the disk is full, SQLite may end a transaction by itself. The rollback that follows then
/// fails, because there is nothing to roll back, and sqlx keeps counting one transaction too many.
/// Such a connection could never begin another transaction.
///
/// A connection that is handed out is not asked whether it is alive: it was when it came back.
fn pool(connections: u32) -> SqlitePoolOptions {
    let options = SqlitePoolOptions::new()
        .max_connections(connections)
        .test_before_acquire(false);
    options.before_acquire(|connection, _| Box::pin(async { Ok(!connection.is_in_transaction()) }))
}

/// The switch to WAL needs exclusive access to the file for a moment, and does not wait for it.
async fn open(
    options: &SqliteConnectOptions,
    acquire_timeout: Duration,
) -> Result<Writer, sqlx::Error> {
    let until = tokio::time::Instant::now() + BUSY_TIMEOUT;
    loop {
        match Writer::connect(options, acquire_timeout).await {
            Err(error) if is_busy(&error) && tokio::time::Instant::now() < until => {
                tokio::time::sleep(OPEN_RETRY_INTERVAL).await
            }
            opened => return opened,
        }
    }
}

/// Whether another process holds the file's lock. The low byte of SQLite's code identifies this
/// case; the other bytes give the reason.
fn is_busy(error: &sqlx::Error) -> bool {
    let code = error
        .as_database_error()
        .and_then(|error| error.code())
        .and_then(|code| code.parse::<i32>().ok());
    code.is_some_and(|code| code & 0xff == SQLITE_BUSY)
}

// The files of `store/` are the same for both databases. They know theirs by these names, each of
// which stands in `postgres.rs`, too.
type Store = SqliteLedger;
type Pool = SqlitePool;
type Connection = SqliteConnection;
type QueryResult = SqliteQueryResult;
type Snapshot = sqlx::Transaction<'static, Sqlite>;
type Query<'q> = sqlx::query::Query<'q, Sqlite, SqliteArguments>;
type QueryAs<'q, T> = sqlx::query::QueryAs<'q, Sqlite, T, SqliteArguments>;
type Row = SqliteRow;

/// Whether there is one writer at a time, so that a statement which may have nothing to change looks
/// before it takes that place.
const HAS_ONE_WRITER: bool = true;

/// What a creation of a webhook locks before it counts the others: there is one writer.
const WEBHOOKS_LOCK: Option<&str> = None;

/// What deletes the counts of a process that were kept. SQLite deletes no rows while it inserts
/// others.
const KEPT_COUNTS: Option<&str> = Some(sql::counts::DELETE);

/// A transaction that changes rows.
async fn begin(store: &Store) -> Result<Transaction, LedgerError> {
    store.write().await
}

/// A connection for one statement that changes rows.
async fn lend(store: &Store) -> Result<Lent, LedgerError> {
    store.writer.lend().await
}

/// The pool for reads of a step. Look-ups and readers of events have `reads`.
fn step_reads(store: &Store) -> &Pool {
    &store.readers
}

/// A transaction whose statements all read one snapshot, which its first read takes.
async fn snapshot(pool: &Pool) -> Result<Snapshot, LedgerError> {
    Ok(pool.begin().await?)
}

/// The present as the last parameter of a statement: the clock of SQLite is that of this process.
fn with_now(query: Query<'_>) -> Query<'_> {
    query.bind(Timestamp::now().as_millisecond())
}

/// A list as one value of a statement: JSON, which `json_each` takes apart.
fn list<T: serde::Serialize>(values: impl IntoIterator<Item = T>) -> Result<String, LedgerError> {
    json(&values.into_iter().collect::<Vec<_>>())
}

/// An id among the values of [`bind_rows`], which `unhex` restores.
fn id_value(id: Uuid) -> String {
    hex(id)
}

/// [`list`] of ids, which `unhex` restores.
fn id_list(ids: impl IntoIterator<Item = Uuid>) -> Result<String, LedgerError> {
    list(ids.into_iter().map(hex))
}

#[async_trait]
impl Ledger for SqliteLedger {
    async fn migrate(&self) -> Result<(), LedgerError> {
        // On SQLite, sqlx takes no lock for a migration. Inside a transaction that it knows, its
        // own are savepoints, and processes take turns.
        let mut apart = self.writer.connect_apart().await?;
        let transaction = apart.begin_with("BEGIN IMMEDIATE").await;
        let mut transaction = transaction.map_err(nothing_sent)?;
        migrations::sqlite()
            .run_direct(None, &mut *transaction, false)
            .await?;
        transaction.commit().await.map_err(LedgerError::commit)
    }

    async fn missing_migrations(&self) -> Result<Vec<i64>, LedgerError> {
        inspection::missing_migrations(&self.readers).await
    }

    async fn inspect(&self) -> Result<DatabaseReport, LedgerError> {
        inspection::report(&self.readers).await
    }

    async fn ping(&self) -> Result<(), LedgerError> {
        sqlx::query("SELECT 1").execute(&self.readers).await?;
        Ok(())
    }

    async fn time(&self) -> Result<Timestamp, LedgerError> {
        let ms = sqlx::query_scalar::<_, i64>(
            "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
        );
        timestamp("now", ms.fetch_one(&self.readers).await?)
    }

    async fn check_writable(&self) -> Result<(), LedgerError> {
        self.probe.check().await
    }
}

/// Encodes a batch as one value: one statement for each row would cost several times as much.
fn json(value: &impl serde::Serialize) -> Result<String, LedgerError> {
    serde_json::to_string(value)
        .map_err(|error| LedgerError::Database(sqlx::Error::Encode(error.into())))
}

/// Encodes an id for JSON; `unhex` restores its sixteen bytes.
fn hex(id: Uuid) -> String {
    id.simple().to_string()
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, task::Poll};

    use domain::{ItemId, OrderId};
    use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};

    use super::{AUDIT_CONNECTIONS, LIST_CONNECTIONS, SqliteLedger, sql};
    use crate::{
        Listing, OrderLife, PoolSettings, Reading, plans::may_read_all, transaction::Transact,
    };

    /// A ledger with its tables, and so many connections, in a folder of its own.
    async fn open(connections: u32) -> (tempfile::TempDir, SqliteLedger) {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/ledger.db", folder.path().display());
        let pool = PoolSettings::patient(connections);
        let ledger = SqliteLedger::connect(&url, pool).await.unwrap();
        crate::Ledger::migrate(&ledger).await.unwrap();
        (folder, ledger)
    }

    async fn run(ledger: &SqliteLedger, sql: &str) -> Result<(), sqlx::Error> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        sql.execute(&mut *ledger.writer.lend().await.unwrap())
            .await
            .map(drop)
    }

    /// How SQLite executes the statement.
    async fn plan(ledger: &SqliteLedger, statement: &str) -> String {
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
        let steps = sqlx::query_as::<_, (i64, i64, i64, String)>(explain);
        let mut lent = ledger.writer.lend().await.unwrap();
        let steps = steps.fetch_all(&mut *lent).await.unwrap();
        let steps: Vec<_> = steps.into_iter().map(|(_, _, _, step)| step).collect();
        steps.join("\n")
    }

    /// Also where an operator has had statistics written, of a ledger with one buyer.
    #[tokio::test]
    async fn the_orders_of_a_buyer_are_found_by_their_index() {
        const ORDERS: &str = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000) \
             INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) \
             SELECT unhex(printf('%032x', n)), 'vase', 0, 'tester', 1, 'held', 0 FROM n";
        let (_folder, ledger) = open(1).await;
        for sql in ["SELECT 1", ORDERS, "ANALYZE"] {
            run(&ledger, sql).await.unwrap();
            for (statement, condition) in [
                (sql::listing::BUYER_ORDERS, "buyer=? AND id>?"),
                (sql::archive::ORDERS_OF, "buyer=?"),
                (sql::archive::BUYER_PAGE, "buyer=? AND id>?"),
            ] {
                let plan = plan(&ledger, statement).await;
                let search = format!("SEARCH orders USING INDEX orders_of_buyer ({condition})");
                assert!(plan.contains(&search), "{sql}: {statement}:\n{plan}");
                assert!(!plan.contains("SCAN"), "{sql}: {statement}:\n{plan}");
                assert!(!plan.contains("TEMP B-TREE"), "{sql}: {statement}:\n{plan}");
            }
            let page = plan(&ledger, &sql::archive::REPLACE_BUYER.replace("?3", "'[]'")).await;
            assert!(!page.contains("orders_of_buyer"), "{sql}:\n{page}");
            assert!(!page.contains("SCAN orders"), "{sql}:\n{page}");
        }
    }

    /// What is finished costs nothing: a statement begins where a condition of an index says.
    #[tokio::test]
    async fn no_statement_reads_a_growing_table_without_a_condition() {
        let (_folder, ledger) = open(1).await;
        for (name, statement) in sql::ALL {
            // Where the document of a row is put.
            let plan = plan(&ledger, &statement.replace("{}", "1")).await;
            for what in plan.lines().filter_map(scanned) {
                // From the oldest or the newest event on, as many as the limit says.
                let ends = ["event_rows::REMOVE", "drops::LAST_EVENT"];
                let may = (what == "events" && ends.contains(name)) || may_read_all(name, what);
                assert!(may, "{name}: {what}:\n{plan}");
            }
        }
    }

    /// The index, or else the table, that a step of a plan reads from one end to the other. Values
    /// of parameters and results of subqueries have neither.
    fn scanned(step: &str) -> Option<&str> {
        // An index that is made for the statement, and one whose first columns are skipped.
        if step.contains(" AUTOMATIC ") || step.contains("ANY(") {
            return Some(step);
        }
        let table = step.strip_prefix("SCAN ")?;
        let has_values = ["VIRTUAL TABLE", "CONSTANT ROW"];
        let is_result = table.starts_with("(subquery") || table == "asked";
        if is_result || has_values.iter().any(|word| table.contains(word)) {
            return None;
        }
        let (table, how) = table.split_once(' ').unwrap_or((table, ""));
        how.rsplit_once("INDEX ")
            .map(|(_, index)| index)
            .or(Some(table))
    }

    #[tokio::test]
    async fn an_audit_without_a_walk_reads_small_indexes() {
        let (_folder, ledger) = open(1).await;
        let plan = plan(&ledger, sql::totals::COUNTS).await;
        for index in ["orders_rejected", "orders_refund_due"] {
            assert!(
                plan.contains(&format!("INDEX {index} (id>? AND id<?)")),
                "{plan}"
            );
        }
        assert!(!plan.contains("SCAN orders"), "{plan}");
    }

    #[tokio::test]
    async fn orders_are_found_while_lists_and_audits_have_all_of_their_connections() {
        let (_folder, ledger) = open(1).await;
        let mut busy = Vec::new();
        for _ in 0..LIST_CONNECTIONS {
            busy.push(ledger.lists.acquire().await.unwrap());
        }
        for _ in 0..AUDIT_CONNECTIONS {
            busy.push(ledger.audits.acquire().await.unwrap());
        }
        let vase: ItemId = "vase".parse().unwrap();
        let brief = std::time::Duration::from_millis(500);
        let sums = tokio::time::timeout(brief, ledger.totals(&vase)).await;
        let list = tokio::time::timeout(brief, ledger.list_items(None, 10)).await;
        assert!(sums.is_err() && list.is_err(), "they wait for their own");
        let order = ledger.order(OrderId::from_bytes([1; 16])).await;
        assert!(order.unwrap().is_none());
        drop(busy);
        assert!(ledger.totals(&vase).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn steps_go_on_while_reads_have_all_of_their_connections() {
        let (_folder, ledger) = open(2).await;
        let busy = ledger.reads.acquire().await.unwrap();
        let order = OrderId::from_bytes([1; 16]);
        let brief = std::time::Duration::from_millis(300);
        let waits = tokio::time::timeout(brief, ledger.look_up_order(order)).await;
        assert!(waits.is_err(), "reads wait for reads");
        assert!(ledger.order(order).await.unwrap().is_none());
        assert!(ledger.transition(&[]).await.unwrap().is_empty());
        drop(busy);
        assert!(ledger.look_up_order(order).await.unwrap().is_none());
    }

    /// A page less than the file needs is a full disk to SQLite.
    #[tokio::test]
    async fn a_file_that_cannot_grow_has_changed_nothing() {
        let (_folder, ledger) = open(1).await;
        let limit = async |pages: u32| {
            let sql = format!("PRAGMA max_page_count = {pages}");
            run(&ledger, &sql).await.unwrap();
        };
        // SQLite raises the limit to the size that the file has.
        limit(1).await;
        let grow = "CREATE TABLE more AS WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 9999) SELECT i FROM n";
        let error = run(&ledger, grow).await.unwrap_err();
        let code = error.as_database_error().and_then(|error| error.code());
        assert_eq!(code.as_deref(), Some("13"));
        let error = crate::LedgerError::from(error);
        assert!(
            error.proves_unchanged() && error.is_retryable(),
            "{error:?}"
        );
        limit(1_000_000).await;
        assert!(run(&ledger, grow).await.is_ok());
        crate::Ledger::check_writable(&ledger).await.unwrap();
    }

    #[tokio::test]
    async fn a_transaction_ended_by_sqlite_does_not_block_the_next_one() {
        let (_folder, ledger) = open(1).await;
        for _ in 0..3 {
            let mut transaction = ledger.write().await.unwrap();
            // SQLite does this when the disk is full.
            sqlx::query("ROLLBACK")
                .execute(&mut *transaction)
                .await
                .unwrap();
            transaction.roll_back().await;
        }
        ledger.write().await.unwrap();
    }

    #[tokio::test]
    async fn a_transaction_that_nothing_ends_is_left_behind_with_its_connection() {
        let (_folder, ledger) = open(1).await;
        for _ in 0..3 {
            run(&ledger, "BEGIN IMMEDIATE").await.unwrap();
            let next = ledger.write().await.unwrap();
            Transact::commit(next).await.unwrap();
        }
    }

    const ADD: &str = "INSERT INTO counts VALUES (1)";

    /// A ledger with a table to count in.
    async fn open_with_counts() -> (tempfile::TempDir, SqliteLedger) {
        let (folder, ledger) = open(1).await;
        let table = run(&ledger, "CREATE TABLE counts (n INTEGER)");
        table.await.unwrap();
        (folder, ledger)
    }

    async fn count(ledger: &SqliteLedger) -> i64 {
        let count = sqlx::query_scalar("SELECT count(*) FROM counts");
        count.fetch_one(&ledger.readers).await.unwrap()
    }

    #[tokio::test]
    async fn a_dropped_transaction_is_rolled_back_before_anything_else_is_written() {
        let (_folder, ledger) = open_with_counts().await;
        let drop_one = async || {
            let mut dropped = ledger.write().await.unwrap();
            sqlx::query(ADD).execute(&mut *dropped).await.unwrap();
        };
        for added in 1..100 {
            drop_one().await;
            let kept = ledger.write().await.unwrap();
            Transact::commit(kept).await.unwrap();
            drop_one().await;
            run(&ledger, ADD).await.unwrap();
            assert_eq!(count(&ledger).await, added);
        }
    }

    /// Wherever it is: at the begin, at the statement or at the commit.
    #[tokio::test]
    async fn a_caller_who_leaves_keeps_no_lock() {
        let (folder, ledger) = open_with_counts().await;
        let url = format!("sqlite://{}/ledger.db", folder.path().display());
        let other = url.parse::<SqliteConnectOptions>().unwrap();
        let other = other.busy_timeout(testbed::timeout());
        let mut other = SqliteConnection::connect_with(&other).await.unwrap();
        let mut ended = 0;
        for number in 0..200 {
            let write = async {
                let mut transaction = ledger.write().await.unwrap();
                sqlx::query(ADD).execute(&mut *transaction).await.unwrap();
                Transact::commit(transaction).await.unwrap();
            };
            let mut write = Box::pin(write);
            let mut polls = number % 20;
            let polled = poll_fn(|context| {
                if polls == 0 {
                    return Poll::Ready(false);
                }
                polls -= 1;
                let polled = write.as_mut().poll(context).map(|()| true);
                // There may be no wake-up after the last one.
                if polls == 0 {
                    Poll::Ready(polled.is_ready())
                } else {
                    polled
                }
            });
            ended += u32::from(polled.await);
            drop(write);
            // Nothing else of this process asks for the lock.
            for statement in ["BEGIN IMMEDIATE", "ROLLBACK"] {
                let done = sqlx::query(statement).execute(&mut other).await;
                done.unwrap_or_else(|error| panic!("{number}: {error}"));
            }
        }
        assert!(0 < ended && ended < 200, "{ended} of 200");
    }
}
