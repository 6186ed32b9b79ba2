//! The ledger on SQLite, embedded.
//!
//! SQLite has one writer at a time. A pool of one connection is the queue for it within the process; between processes it is
//! `BEGIN IMMEDIATE`, which waits for the lock before it reads. A claim is therefore simply the write lock.

mod items;
mod life;
mod mending;
mod recording;
mod stock;
mod totals;

use std::{path::Path, str::FromStr, time::Duration};

use async_trait::async_trait;
use domain::{
    EntryId, Item, ItemId, ItemTag, Order, OrderId, OrderState, SegmentConfig, SegmentKey,
    TransferId,
};
use jiff::Timestamp;
use sqlx::{
    Connection, Sqlite, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use crate::{
    Changed, Claim, Created, ItemChange, ItemTotals, JournalEntry, Ledger, LedgerError, Mending,
    NewJournalEntry, PendingReturn, SegmentRow, StockChange, Transfer, TransferPlan, Transition,
    changes::{item, stock as moves},
    columns::{ConfigColumns, ItemColumns, OrderColumns, SegmentColumns, checkpoint, fates},
    convert::column,
    life::transition,
    transaction::Transact,
};

/// How long to wait for another process's write.
const BUSY: Duration = Duration::from_secs(5);

const OPEN_PAUSE: Duration = Duration::from_millis(20);

const SQLITE_BUSY: i32 = 5;

macro_rules! item_columns {
    () => {
        "id, title, stock, price_cents, currency, limit_per_buyer, segments, hold_seconds, durability, state, epoch, version, \
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
        "id, item, segment, buyer, quantity, state, expires_at AS expires_ms, attempt, payment, version"
    };
}

macro_rules! transfer_columns {
    () => {
        "id, item, from_segment, to_segment, asked, moved, state, since AS since_ms"
    };
}
use {item_columns, order_columns, segment_columns, transfer_columns};

/// The ledger on SQLite.
pub(crate) struct SqliteLedger {
    readers: SqlitePool,
    writer: SqlitePool,
}

impl SqliteLedger {
    pub(crate) async fn connect(url: &str, connections: u32) -> Result<Self, LedgerError> {
        let options = SqliteConnectOptions::from_str(url)?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // An acknowledged order survives the loss of power, not only of the process.
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY);
        if let Some(folder) = options
            .get_filename()
            .parent()
            .filter(|folder| *folder != Path::new(""))
        {
            std::fs::create_dir_all(folder).map_err(sqlx::Error::Io)?;
        }
        let pool = |connections| pool(connections).acquire_timeout(BUSY);
        let writer = open(pool(1), &options).await?;
        let readers = pool(connections).connect_with(options).await?;
        Ok(Self { readers, writer })
    }

    async fn write(&self) -> Result<Transaction, LedgerError> {
        Ok(self.writer.begin_with("BEGIN IMMEDIATE").await?)
    }
}

/// Connections of which none is taken that still believes to be in a transaction.
///
/// When the disk is full, SQLite may end a transaction by itself. The rollback that follows then fails, because there is nothing to roll
/// back, and sqlx goes on counting one transaction too many: such a connection could never begin another one.
fn pool(connections: u32) -> SqlitePoolOptions {
    let options = SqlitePoolOptions::new().max_connections(connections);
    options.before_acquire(|connection, _| Box::pin(async { Ok(!connection.is_in_transaction()) }))
}

/// The switch to WAL needs the file for itself for a moment, and does not wait for it.
async fn open(
    pool: SqlitePoolOptions,
    options: &SqliteConnectOptions,
) -> Result<SqlitePool, sqlx::Error> {
    let until = tokio::time::Instant::now() + BUSY;
    loop {
        match pool.clone().connect_with(options.clone()).await {
            Err(error) if is_busy(&error) && tokio::time::Instant::now() < until => {
                tokio::time::sleep(OPEN_PAUSE).await
            }
            opened => return opened,
        }
    }
}

/// Whether another process holds the file's lock. The low byte of SQLite's code tells; the others say why.
fn is_busy(error: &sqlx::Error) -> bool {
    let code = error
        .as_database_error()
        .and_then(|error| error.code())
        .and_then(|code| code.parse::<i32>().ok());
    code.is_some_and(|code| code & 0xff == SQLITE_BUSY)
}

type Transaction = sqlx::Transaction<'static, Sqlite>;

#[async_trait]
impl Transact for Transaction {
    async fn commit(self) -> Result<(), LedgerError> {
        Ok(Transaction::commit(self).await?)
    }

    async fn roll_back(self) {
        // If the connection is gone, so is the transaction.
        let _ = self.rollback().await;
    }
}

#[async_trait]
impl Ledger for SqliteLedger {
    async fn migrate(&self) -> Result<(), LedgerError> {
        // sqlx takes no lock of its own here. Inside our transaction its transactions are savepoints, and processes take turns.
        let mut transaction = self.write().await?;
        sqlx::migrate!("../../migrations/sqlite")
            .run_direct(None, &mut *transaction, false)
            .await?;
        transaction.commit().await?;
        Ok(())
    }

    async fn ping(&self) -> Result<(), LedgerError> {
        sqlx::query("SELECT 1").execute(&self.readers).await?;
        Ok(())
    }

    async fn create_item(&self, item: &Item) -> Result<Created, LedgerError> {
        items::create(self.write().await?, item).await
    }

    async fn item(&self, id: &ItemId) -> Result<Option<Item>, LedgerError> {
        let row = sqlx::query_as::<_, ItemColumns>(concat!(
            "SELECT ",
            item_columns!(),
            " FROM items WHERE id = ?"
        ));
        row.bind(id.as_str())
            .fetch_optional(&self.readers)
            .await?
            .map(Item::try_from)
            .transpose()
    }

    async fn items_tagged(&self, tag: ItemTag) -> Result<Vec<Item>, LedgerError> {
        let rows = sqlx::query_as::<_, ItemColumns>(concat!(
            "SELECT ",
            item_columns!(),
            " FROM items WHERE tag = ? ORDER BY id"
        ));
        rows.bind(i64::from(tag.0))
            .fetch_all(&self.readers)
            .await?
            .into_iter()
            .map(Item::try_from)
            .collect()
    }

    async fn change_item(
        &self,
        id: &ItemId,
        change: &ItemChange,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        item::change_item(self.write().await?, id, change, expected, actor).await
    }

    async fn change_stock_by(
        &self,
        id: &ItemId,
        change: &StockChange,
        wished: u64,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        if self.item(id).await?.is_none() {
            return Ok(Changed::NoItem);
        }
        moves::change_stock(self.write().await?, id, change, wished, expected, actor).await
    }

    async fn claim_item(&self, id: &ItemId, token: u64) -> Result<(), LedgerError> {
        items::claim(&self.writer, id, token).await
    }

    async fn plan_transfers(
        &self,
        id: &ItemId,
        token: u64,
        plans: &[TransferPlan],
    ) -> Result<(), LedgerError> {
        moves::plan(self.write().await?, id, token, plans).await
    }

    async fn open_transfers(&self, item: Option<&ItemId>) -> Result<Vec<Transfer>, LedgerError> {
        stock::open_transfers(&self.readers, item).await
    }

    async fn transfers(&self, ids: &[TransferId]) -> Result<Vec<Transfer>, LedgerError> {
        stock::transfers(&self.readers, ids).await
    }

    async fn finish_take_back(
        &self,
        transfer: &Transfer,
        token: u64,
        actor: &str,
    ) -> Result<(), LedgerError> {
        moves::finish_take_back(self.write().await?, transfer, token, actor).await
    }

    async fn claim_to_mend(
        &self,
        segments: &[SegmentKey],
        token: u64,
    ) -> Result<Box<dyn Mending>, LedgerError> {
        mending::claim(self.write().await?, segments, token).await
    }

    async fn journal(
        &self,
        item: &ItemId,
        at_most: usize,
    ) -> Result<Vec<JournalEntry>, LedgerError> {
        items::journal(&self.readers, item, at_most).await
    }

    async fn note(&self, entry: &NewJournalEntry) -> Result<(), LedgerError> {
        items::note(&self.writer, entry, None).await.map(drop)
    }

    async fn note_once(&self, entry: &NewJournalEntry, once: &str) -> Result<bool, LedgerError> {
        items::note(&self.writer, entry, Some(once)).await
    }

    async fn segments(&self, item: &ItemId) -> Result<Vec<SegmentRow>, LedgerError> {
        let rows = sqlx::query_as::<_, SegmentColumns>(concat!(
            "SELECT ",
            segment_columns!(),
            " FROM segments WHERE item = ? ORDER BY segment"
        ));
        rows.bind(item.as_str())
            .fetch_all(&self.readers)
            .await?
            .into_iter()
            .map(SegmentRow::try_from)
            .collect()
    }

    async fn checkpoints(&self) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64, Option<String>)>(
            "SELECT item, segment, checkpoint FROM segments",
        );
        rows.fetch_all(&self.readers)
            .await?
            .into_iter()
            .map(checkpoint)
            .collect()
    }

    async fn segment_configs(&self) -> Result<Vec<(ItemId, SegmentConfig)>, LedgerError> {
        let rows =
            sqlx::query_as::<_, ConfigColumns>(concat!("SELECT ", item_columns!(), " FROM items"));
        rows.fetch_all(&self.readers)
            .await?
            .into_iter()
            .map(TryInto::try_into)
            .collect()
    }

    async fn order(&self, id: OrderId) -> Result<Option<Order>, LedgerError> {
        let row = sqlx::query_as::<_, OrderColumns>(concat!(
            "SELECT ",
            order_columns!(),
            " FROM orders WHERE id = ?"
        ));
        row.bind(id.as_uuid())
            .fetch_optional(&self.readers)
            .await?
            .map(Order::try_from)
            .transpose()
    }

    async fn due(
        &self,
        item: Option<&ItemId>,
        now: Timestamp,
        at_most: usize,
    ) -> Result<Vec<Order>, LedgerError> {
        life::due(&self.readers, item, now, at_most).await
    }

    async fn transition(
        &self,
        transitions: &[Transition],
    ) -> Result<Vec<Option<Order>>, LedgerError> {
        transition::transition(self.write().await?, transitions).await
    }

    async fn pending_returns(
        &self,
        item: Option<&ItemId>,
        before: Timestamp,
        at_most: usize,
    ) -> Result<Vec<PendingReturn>, LedgerError> {
        life::pending_returns(&self.readers, item, before, at_most).await
    }

    async fn recorded_among(
        &self,
        ids: &[OrderId],
    ) -> Result<Vec<(OrderId, OrderState)>, LedgerError> {
        let first: Vec<_> = ids.iter().map(|id| id.first()).collect();
        let rows = sqlx::query_as::<_, (uuid::Uuid, String, i64)>(
            "SELECT id, state, attempt FROM orders WHERE id IN (SELECT unhex(value) FROM json_each(?))",
        );
        fates(
            ids,
            rows.bind(hex_list(&first)?)
                .fetch_all(&self.readers)
                .await?,
        )
    }

    async fn totals(&self, item: &ItemId) -> Result<Option<ItemTotals>, LedgerError> {
        totals::totals(&self.readers, item).await
    }

    async fn unaccounted(&self, item: &ItemId) -> Result<i64, LedgerError> {
        totals::unaccounted(&self.readers, item).await
    }

    async fn claim(
        &self,
        wanted: &[SegmentKey],
        at_most: usize,
    ) -> Result<Option<Box<dyn Claim>>, LedgerError> {
        recording::claim(self.write().await?, wanted, at_most).await
    }
}

/// A batch as one value: a statement per row would cost several times as much.
fn json(value: &impl serde::Serialize) -> Result<String, LedgerError> {
    serde_json::to_string(value)
        .map_err(|error| LedgerError::Database(sqlx::Error::Encode(error.into())))
}

/// An id as JSON can hold it; `unhex` makes the sixteen bytes of it again.
fn hex(id: uuid::Uuid) -> String {
    id.simple().to_string()
}

fn hex_list<'a>(ids: impl IntoIterator<Item = &'a OrderId>) -> Result<String, LedgerError> {
    json(&column(ids, |id| hex(id.as_uuid())))
}

#[cfg(test)]
mod tests {
    use super::SqliteLedger;
    use crate::transaction::Transact;

    #[tokio::test]
    async fn a_transaction_that_sqlite_ended_by_itself_is_not_in_the_way_of_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = SqliteLedger::connect(
            &format!("sqlite://{}/ledger.db", folder.path().display()),
            1,
        )
        .await
        .unwrap();
        for _ in 0..3 {
            let mut transaction = ledger.write().await.unwrap();
            // What SQLite does when the disk is full.
            sqlx::query("ROLLBACK")
                .execute(&mut *transaction)
                .await
                .unwrap();
            transaction.roll_back().await;
        }
        ledger.write().await.unwrap();
    }
}
