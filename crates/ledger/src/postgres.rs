//! The ledger on PostgreSQL.

mod items;
mod life;
mod mending;
mod recording;
mod stock;
mod totals;

use std::{str::FromStr, time::Duration};

use async_trait::async_trait;
use domain::{
    EntryId, Item, ItemId, ItemTag, Order, OrderId, OrderState, SegmentConfig, SegmentKey,
    TransferId,
};
use jiff::Timestamp;
use sqlx::{
    Connection, PgPool, Postgres,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::{
    Changed, Claim, Created, ItemChange, ItemTotals, JournalEntry, Ledger, LedgerError, Mending,
    NewJournalEntry, PendingReturn, SegmentRow, StockChange, Transfer, TransferPlan, Transition,
    changes::{item, stock as moves},
    columns::{ConfigColumns, ItemColumns, OrderColumns, SegmentColumns, checkpoint, fates},
    life::transition,
    transaction::Transact,
};

/// Times leave the database as milliseconds, which is what all of us count in.
macro_rules! item_columns {
    () => {
        "id, title, stock, price_cents, currency, limit_per_buyer, segments::bigint, hold_seconds, durability, state, epoch, version, \
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
        "id, item, segment::bigint, buyer, quantity, state, (extract(epoch FROM expires_at) * 1000)::bigint AS expires_ms, attempt::bigint, \
         payment, version"
    };
}

macro_rules! transfer_columns {
    () => {
        "id, item, from_segment::bigint, to_segment::bigint, asked, moved, state, (extract(epoch FROM since) * 1000)::bigint AS since_ms"
    };
}
use {item_columns, order_columns, segment_columns, transfer_columns};

/// A connection that was idle for longer is asked whether it still lives: after a restart of the server every one of the pool is dead. Asking
/// each time would cost a round trip per statement; one that was in use a moment ago may still fail, once.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

/// A recorder that hangs in the middle of a claim (a stopped process, a lost network) would keep its rows from all others.
const IDLE_IN_TRANSACTION_MS: &str = "10000";

/// Every statement that reads a table which grows has its index. The statistics of a table that a sale has just filled, or has just emptied, lead to
/// plans that read all of it for every batch, until somebody analyzes it, and to other plans than the tests have seen.
const BY_INDEX: [(&str, &str); 2] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
];

/// A table that has no index for a statement makes its plan look endlessly dear, now that it is not to be read whole, and PostgreSQL would compile the
/// statement anew each time: half of what the ledger cost the processor, for statements of a millisecond.
const NO_COMPILER: [(&str, &str); 1] = [("jit", "off")];

/// What a transaction reads after it has waited for a lock is what the one that had it has written.
const ISOLATION: [(&str, &str); 1] = [("default_transaction_isolation", "read committed")];

/// The ledger on PostgreSQL.
pub(crate) struct PostgresLedger {
    pool: PgPool,
}

impl PostgresLedger {
    pub(crate) async fn connect(url: &str, connections: u32) -> Result<Self, LedgerError> {
        let options = PgConnectOptions::from_str(url)?
            .application_name("stockade")
            .options([(
                "idle_in_transaction_session_timeout",
                IDLE_IN_TRANSACTION_MS,
            )])
            .options(BY_INDEX)
            .options(NO_COMPILER)
            .options(ISOLATION);
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(Duration::from_secs(3))
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    Ok(meta.idle_for < TRUSTED_IDLE || connection.ping().await.is_ok())
                })
            })
            .connect_with(options)
            .await?;
        Ok(Self { pool })
    }
}

type Transaction = sqlx::Transaction<'static, Postgres>;

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
impl Ledger for PostgresLedger {
    async fn migrate(&self) -> Result<(), LedgerError> {
        // sqlx takes an advisory lock, so that of several processes one does it.
        Ok(sqlx::migrate!("../../migrations/postgres")
            .run(&self.pool)
            .await?)
    }

    async fn ping(&self) -> Result<(), LedgerError> {
        sqlx::query("SELECT 1").execute(&self.pool).await?;
        Ok(())
    }

    async fn create_item(&self, item: &Item) -> Result<Created, LedgerError> {
        items::create(&self.pool, item).await
    }

    async fn item(&self, id: &ItemId) -> Result<Option<Item>, LedgerError> {
        let row = sqlx::query_as::<_, ItemColumns>(concat!(
            "SELECT ",
            item_columns!(),
            " FROM items WHERE id = $1"
        ));
        row.bind(id.as_str())
            .fetch_optional(&self.pool)
            .await?
            .map(Item::try_from)
            .transpose()
    }

    async fn items_tagged(&self, tag: ItemTag) -> Result<Vec<Item>, LedgerError> {
        let rows = sqlx::query_as::<_, ItemColumns>(concat!(
            "SELECT ",
            item_columns!(),
            " FROM items WHERE tag = $1 ORDER BY id"
        ));
        rows.bind(i64::from(tag.0))
            .fetch_all(&self.pool)
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
        item::change_item(self.pool.begin().await?, id, change, expected, actor).await
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
        moves::change_stock(
            self.pool.begin().await?,
            id,
            change,
            wished,
            expected,
            actor,
        )
        .await
    }

    async fn claim_item(&self, id: &ItemId, token: u64) -> Result<(), LedgerError> {
        items::claim(&self.pool, id, token).await
    }

    async fn plan_transfers(
        &self,
        id: &ItemId,
        token: u64,
        plans: &[TransferPlan],
    ) -> Result<(), LedgerError> {
        moves::plan(self.pool.begin().await?, id, token, plans).await
    }

    async fn open_transfers(&self, item: Option<&ItemId>) -> Result<Vec<Transfer>, LedgerError> {
        stock::open_transfers(&self.pool, item).await
    }

    async fn transfers(&self, ids: &[TransferId]) -> Result<Vec<Transfer>, LedgerError> {
        stock::transfers(&self.pool, ids).await
    }

    async fn finish_take_back(
        &self,
        transfer: &Transfer,
        token: u64,
        actor: &str,
    ) -> Result<(), LedgerError> {
        moves::finish_take_back(self.pool.begin().await?, transfer, token, actor).await
    }

    async fn claim_to_mend(
        &self,
        segments: &[SegmentKey],
        token: u64,
    ) -> Result<Box<dyn Mending>, LedgerError> {
        mending::claim(&self.pool, segments, token).await
    }

    async fn journal(
        &self,
        item: &ItemId,
        at_most: usize,
    ) -> Result<Vec<JournalEntry>, LedgerError> {
        items::journal(&self.pool, item, at_most).await
    }

    async fn note(&self, entry: &NewJournalEntry) -> Result<(), LedgerError> {
        items::note(&self.pool, entry, None).await.map(drop)
    }

    async fn note_once(&self, entry: &NewJournalEntry, once: &str) -> Result<bool, LedgerError> {
        items::note(&self.pool, entry, Some(once)).await
    }

    async fn segments(&self, item: &ItemId) -> Result<Vec<SegmentRow>, LedgerError> {
        let rows = sqlx::query_as::<_, SegmentColumns>(concat!(
            "SELECT ",
            segment_columns!(),
            " FROM segments WHERE item = $1 ORDER BY 2"
        ));
        rows.bind(item.as_str())
            .fetch_all(&self.pool)
            .await?
            .into_iter()
            .map(SegmentRow::try_from)
            .collect()
    }

    async fn checkpoints(&self) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64, Option<String>)>(
            "SELECT item, segment::bigint, checkpoint FROM segments",
        );
        rows.fetch_all(&self.pool)
            .await?
            .into_iter()
            .map(checkpoint)
            .collect()
    }

    async fn segment_configs(&self) -> Result<Vec<(ItemId, SegmentConfig)>, LedgerError> {
        let rows =
            sqlx::query_as::<_, ConfigColumns>(concat!("SELECT ", item_columns!(), " FROM items"));
        rows.fetch_all(&self.pool)
            .await?
            .into_iter()
            .map(TryInto::try_into)
            .collect()
    }

    async fn order(&self, id: OrderId) -> Result<Option<Order>, LedgerError> {
        let row = sqlx::query_as::<_, OrderColumns>(concat!(
            "SELECT ",
            order_columns!(),
            " FROM orders WHERE id = $1"
        ));
        row.bind(id.as_uuid())
            .fetch_optional(&self.pool)
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
        life::due(&self.pool, item, now, at_most).await
    }

    async fn transition(
        &self,
        transitions: &[Transition],
    ) -> Result<Vec<Option<Order>>, LedgerError> {
        transition::transition(self.pool.begin().await?, transitions).await
    }

    async fn pending_returns(
        &self,
        item: Option<&ItemId>,
        before: Timestamp,
        at_most: usize,
    ) -> Result<Vec<PendingReturn>, LedgerError> {
        life::pending_returns(&self.pool, item, before, at_most).await
    }

    async fn recorded_among(
        &self,
        ids: &[OrderId],
    ) -> Result<Vec<(OrderId, OrderState)>, LedgerError> {
        let first: Vec<_> = ids.iter().map(|id| id.first().as_uuid()).collect();
        let rows = sqlx::query_as::<_, (uuid::Uuid, String, i64)>(
            "SELECT id, state, attempt::bigint FROM orders WHERE id = ANY($1)",
        );
        fates(ids, rows.bind(first).fetch_all(&self.pool).await?)
    }

    async fn totals(&self, item: &ItemId) -> Result<Option<ItemTotals>, LedgerError> {
        totals::totals(&self.pool, item).await
    }

    async fn unaccounted(&self, item: &ItemId) -> Result<i64, LedgerError> {
        totals::unaccounted(&self.pool, item).await
    }

    async fn claim(
        &self,
        wanted: &[SegmentKey],
        at_most: usize,
    ) -> Result<Option<Box<dyn Claim>>, LedgerError> {
        recording::claim(&self.pool, wanted, at_most).await
    }
}
