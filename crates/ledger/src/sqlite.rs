//! The ledger on SQLite, embedded.
//!
//! SQLite has one writer at a time. A pool of one connection is the queue for it within the process; between processes it is
//! `BEGIN IMMEDIATE`, which waits for the lock before it reads. A claim is therefore simply the write lock.

mod recording;

use std::{path::Path, str::FromStr, time::Duration};

use async_trait::async_trait;
use domain::{EntryId, Item, ItemId, ItemState, ItemTag, Order, OrderId, SegmentKey};
use sqlx::{
    Sqlite, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use crate::{
    Claim, Created, ItemTotals, Ledger, LedgerError, SegmentRow,
    convert::{ItemColumns, OrderColumns, SegmentColumns, checkpoint, id_range, item_state, same_item, signed},
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
        "item, segment, allocated, available, held, confirmed, checkpoint, anchor, version, fence"
    };
}
use segment_columns;

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
        if let Some(folder) = options.get_filename().parent().filter(|folder| *folder != Path::new("")) {
            std::fs::create_dir_all(folder).map_err(sqlx::Error::Io)?;
        }
        let pool = |connections| SqlitePoolOptions::new().max_connections(connections).acquire_timeout(BUSY);
        let writer = open(pool(1), &options).await?;
        let readers = pool(connections).connect_with(options).await?;
        Ok(Self { readers, writer })
    }

    async fn write(&self) -> Result<Transaction, LedgerError> {
        Ok(self.writer.begin_with("BEGIN IMMEDIATE").await?)
    }

    async fn insert_item(&self, item: &Item) -> Result<bool, LedgerError> {
        let mut transaction = self.write().await?;
        let inserted = sqlx::query(
            "INSERT INTO items (id, tag, title, stock, price_cents, currency, limit_per_buyer, segments, opens_at, closes_at, \
                                hold_seconds, durability, state, epoch) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        )
        .bind(item.id.as_str())
        .bind(i64::from(item.id.tag().0))
        .bind(&item.title)
        .bind(signed(item.stock))
        .bind(signed(item.price_cents))
        .bind(&item.currency)
        .bind(item.limit_per_buyer.map(|limit| i64::from(limit.get())))
        .bind(i32::from(item.segments))
        .bind(item.window.opens_at.map(jiff::Timestamp::as_millisecond))
        .bind(item.window.closes_at.map(jiff::Timestamp::as_millisecond))
        .bind(i64::from(item.hold_seconds))
        .bind(item.durability.as_str())
        .bind(item.state.as_str())
        .bind(signed(item.epoch))
        .execute(&mut *transaction)
        .await?
        .rows_affected();
        if inserted == 0 {
            return Ok(false);
        }
        for segment in 0..item.segments {
            let row = sqlx::query("INSERT INTO segments (item, segment, allocated, available) VALUES (?1, ?2, ?3, ?3)");
            let row = row.bind(item.id.as_str()).bind(i32::from(segment)).bind(signed(item.share(segment)));
            row.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(true)
    }
}

/// The switch to WAL needs the file for itself for a moment, and does not wait for it.
async fn open(pool: SqlitePoolOptions, options: &SqliteConnectOptions) -> Result<SqlitePool, sqlx::Error> {
    let until = tokio::time::Instant::now() + BUSY;
    loop {
        match pool.clone().connect_with(options.clone()).await {
            Err(error) if is_busy(&error) && tokio::time::Instant::now() < until => tokio::time::sleep(OPEN_PAUSE).await,
            opened => return opened,
        }
    }
}

/// Whether another process holds the file's lock. The low byte of SQLite's code tells; the others say why.
fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code()).and_then(|code| code.parse::<i32>().ok());
    code.is_some_and(|code| code & 0xff == SQLITE_BUSY)
}

#[async_trait]
impl Ledger for SqliteLedger {
    async fn migrate(&self) -> Result<(), LedgerError> {
        // sqlx takes no lock of its own here. Inside our transaction its transactions are savepoints, and processes take turns.
        let mut transaction = self.write().await?;
        sqlx::migrate!("../../migrations/sqlite").run_direct(None, &mut *transaction, false).await?;
        transaction.commit().await?;
        Ok(())
    }

    async fn ping(&self) -> Result<(), LedgerError> {
        sqlx::query("SELECT 1").execute(&self.readers).await?;
        Ok(())
    }

    async fn create_item(&self, item: &Item) -> Result<Created, LedgerError> {
        let new = self.insert_item(item).await?;
        let found = self.item(&item.id).await?.ok_or(sqlx::Error::RowNotFound)?;
        Ok(match (new, same_item(&found, item)) {
            (true, _) => Created::New(found),
            (false, true) => Created::Same(found),
            (false, false) => Created::Different,
        })
    }

    async fn item(&self, id: &ItemId) -> Result<Option<Item>, LedgerError> {
        let row = sqlx::query_as::<_, ItemColumns>(concat!("SELECT ", item_columns!(), " FROM items WHERE id = ?"));
        row.bind(id.as_str()).fetch_optional(&self.readers).await?.map(Item::try_from).transpose()
    }

    async fn items_tagged(&self, tag: ItemTag) -> Result<Vec<Item>, LedgerError> {
        let rows = sqlx::query_as::<_, ItemColumns>(concat!("SELECT ", item_columns!(), " FROM items WHERE tag = ? ORDER BY id"));
        rows.bind(i64::from(tag.0)).fetch_all(&self.readers).await?.into_iter().map(Item::try_from).collect()
    }

    async fn set_item_state(&self, id: &ItemId, state: ItemState) -> Result<Option<Item>, LedgerError> {
        loop {
            let Some(item) = self.item(id).await? else { return Ok(None) };
            if item.state == state {
                return Ok(Some(item));
            }
            let changed = sqlx::query("UPDATE items SET state = ?, epoch = epoch + 1, version = version + 1 WHERE id = ? AND version = ?");
            // Zero rows: somebody changed the item meanwhile. Decide again on what it is now.
            changed.bind(state.as_str()).bind(id.as_str()).bind(signed(item.version)).execute(&self.writer).await?;
        }
    }

    async fn segments(&self, item: &ItemId) -> Result<Vec<SegmentRow>, LedgerError> {
        let rows =
            sqlx::query_as::<_, SegmentColumns>(concat!("SELECT ", segment_columns!(), " FROM segments WHERE item = ? ORDER BY segment"));
        rows.bind(item.as_str()).fetch_all(&self.readers).await?.into_iter().map(SegmentRow::try_from).collect()
    }

    async fn checkpoints(&self) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64, Option<String>)>("SELECT item, segment, checkpoint FROM segments");
        rows.fetch_all(&self.readers).await?.into_iter().map(checkpoint).collect()
    }

    async fn item_states(&self) -> Result<Vec<(ItemId, ItemState, u64)>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, String, i64)>("SELECT id, state, epoch FROM items");
        rows.fetch_all(&self.readers).await?.into_iter().map(item_state).collect()
    }

    async fn order(&self, id: OrderId) -> Result<Option<Order>, LedgerError> {
        let row = sqlx::query_as::<_, OrderColumns>(
            "SELECT item, segment, buyer, quantity, state, expires_at AS expires_ms, version FROM orders WHERE id = ?",
        );
        let row = row.bind(&id.as_bytes()[..]).fetch_optional(&self.readers).await?;
        row.map(|row| row.into_order(id)).transpose()
    }

    async fn rejected_among(&self, ids: &[OrderId]) -> Result<Vec<OrderId>, LedgerError> {
        let rows = sqlx::query_scalar::<_, Vec<u8>>(
            "SELECT id FROM orders WHERE id IN (SELECT unhex(value) FROM json_each(?)) AND state = 'rejected'",
        );
        let rows = rows.bind(recording::hex_list(ids)?).fetch_all(&self.readers).await?;
        rows.iter().map(|id| recording::order_id(id)).collect()
    }

    async fn totals(&self, item: &ItemId) -> Result<Option<ItemTotals>, LedgerError> {
        // A read transaction is a snapshot from its first read on.
        let mut snapshot = self.readers.begin().await?;
        let found = sqlx::query_as::<_, ItemColumns>(concat!("SELECT ", item_columns!(), " FROM items WHERE id = ?"));
        let Some(found) = found.bind(item.as_str()).fetch_optional(&mut *snapshot).await? else { return Ok(None) };
        let rows =
            sqlx::query_as::<_, SegmentColumns>(concat!("SELECT ", segment_columns!(), " FROM segments WHERE item = ? ORDER BY segment"));
        let rows = rows.bind(item.as_str()).fetch_all(&mut *snapshot).await?;
        let held = sqlx::query_as::<_, (i64, i64)>(
            "SELECT segment, sum(quantity) FROM orders WHERE id BETWEEN ?2 AND ?3 AND item = ?1 AND state = 'held' GROUP BY segment",
        );
        let [first, last] = id_range(item.tag()).map(|id| id.as_bytes().to_vec());
        let held = held.bind(item.as_str()).bind(&first).bind(&last).fetch_all(&mut *snapshot).await?;
        let states = sqlx::query_as::<_, (String, i64)>(
            "SELECT state, count(*) FROM orders WHERE id BETWEEN ?2 AND ?3 AND item = ?1 GROUP BY state ORDER BY state",
        );
        let states = states.bind(item.as_str()).bind(&first).bind(&last).fetch_all(&mut *snapshot).await?;
        ItemTotals::new(found, rows, &held, states).map(Some)
    }

    async fn claim(&self, wanted: &[SegmentKey], at_most: usize) -> Result<Option<Box<dyn Claim>>, LedgerError> {
        recording::claim(self.write().await?, wanted, at_most).await
    }
}

type Transaction = sqlx::Transaction<'static, Sqlite>;
