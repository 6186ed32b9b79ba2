//! The ledger on PostgreSQL.

mod recording;

use std::{str::FromStr, time::Duration};

use async_trait::async_trait;
use domain::{EntryId, Item, ItemId, ItemState, ItemTag, Order, OrderId, SegmentKey};
use sqlx::{
    Connection, PgPool, Postgres,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::{
    Claim, Created, ItemTotals, Ledger, LedgerError, SegmentRow,
    convert::{ItemColumns, OrderColumns, SegmentColumns, checkpoint, id_range, item_state, same_item, signed},
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
        "item, segment::bigint, allocated, available, held, confirmed, checkpoint, anchor, version, fence"
    };
}
use segment_columns;

/// A connection that was idle for longer is asked whether it still lives: after a restart of the server every one of the pool is dead. Asking
/// each time would cost a round trip per statement; one that was in use a moment ago may still fail, once.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

/// A recorder that hangs in the middle of a claim (a stopped process, a lost network) would keep its rows from all others.
const IDLE_IN_TRANSACTION_MS: &str = "10000";

/// The ledger on PostgreSQL.
pub(crate) struct PostgresLedger {
    pool: PgPool,
}

impl PostgresLedger {
    pub(crate) async fn connect(url: &str, connections: u32) -> Result<Self, LedgerError> {
        let options = PgConnectOptions::from_str(url)?
            .application_name("stockade")
            .options([("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION_MS)]);
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(Duration::from_secs(3))
            .test_before_acquire(false)
            .before_acquire(|connection, meta| Box::pin(async move { Ok(meta.idle_for < TRUSTED_IDLE || connection.ping().await.is_ok()) }))
            .connect_with(options)
            .await?;
        Ok(Self { pool })
    }

    async fn insert_item(&self, item: &Item) -> Result<bool, LedgerError> {
        let mut transaction = self.pool.begin().await?;
        let inserted = sqlx::query(
            "INSERT INTO items (id, tag, title, stock, price_cents, currency, limit_per_buyer, segments, opens_at, closes_at, \
                                hold_seconds, durability, state, epoch) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, to_timestamp($9::double precision / 1000), \
                     to_timestamp($10::double precision / 1000), $11, $12, $13, $14) \
             ON CONFLICT (id) DO NOTHING",
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
        let (segments, shares): (Vec<_>, Vec<_>) =
            (0..item.segments).map(|segment| (i32::from(segment), signed(item.share(segment)))).unzip();
        sqlx::query(
            "INSERT INTO segments (item, segment, allocated, available) \
             SELECT $1, segment, share, share FROM UNNEST($2::integer[], $3::bigint[]) AS new (segment, share)",
        )
        .bind(item.id.as_str())
        .bind(segments)
        .bind(shares)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(true)
    }
}

#[async_trait]
impl Ledger for PostgresLedger {
    async fn migrate(&self) -> Result<(), LedgerError> {
        // sqlx takes an advisory lock, so that of several processes one does it.
        Ok(sqlx::migrate!("../../migrations/postgres").run(&self.pool).await?)
    }

    async fn ping(&self) -> Result<(), LedgerError> {
        sqlx::query("SELECT 1").execute(&self.pool).await?;
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
        let row = sqlx::query_as::<_, ItemColumns>(concat!("SELECT ", item_columns!(), " FROM items WHERE id = $1"));
        row.bind(id.as_str()).fetch_optional(&self.pool).await?.map(Item::try_from).transpose()
    }

    async fn items_tagged(&self, tag: ItemTag) -> Result<Vec<Item>, LedgerError> {
        let rows = sqlx::query_as::<_, ItemColumns>(concat!("SELECT ", item_columns!(), " FROM items WHERE tag = $1 ORDER BY id"));
        rows.bind(i64::from(tag.0)).fetch_all(&self.pool).await?.into_iter().map(Item::try_from).collect()
    }

    async fn set_item_state(&self, id: &ItemId, state: ItemState) -> Result<Option<Item>, LedgerError> {
        loop {
            let Some(item) = self.item(id).await? else { return Ok(None) };
            if item.state == state {
                return Ok(Some(item));
            }
            let changed =
                sqlx::query("UPDATE items SET state = $2, epoch = epoch + 1, version = version + 1 WHERE id = $1 AND version = $3");
            // Zero rows: somebody changed the item meanwhile. Decide again on what it is now.
            changed.bind(id.as_str()).bind(state.as_str()).bind(signed(item.version)).execute(&self.pool).await?;
        }
    }

    async fn segments(&self, item: &ItemId) -> Result<Vec<SegmentRow>, LedgerError> {
        let rows = sqlx::query_as::<_, SegmentColumns>(concat!("SELECT ", segment_columns!(), " FROM segments WHERE item = $1 ORDER BY 2"));
        rows.bind(item.as_str()).fetch_all(&self.pool).await?.into_iter().map(SegmentRow::try_from).collect()
    }

    async fn checkpoints(&self) -> Result<Vec<(SegmentKey, Option<EntryId>)>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64, Option<String>)>("SELECT item, segment::bigint, checkpoint FROM segments");
        rows.fetch_all(&self.pool).await?.into_iter().map(checkpoint).collect()
    }

    async fn item_states(&self) -> Result<Vec<(ItemId, ItemState, u64)>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, String, i64)>("SELECT id, state, epoch FROM items");
        rows.fetch_all(&self.pool).await?.into_iter().map(item_state).collect()
    }

    async fn order(&self, id: OrderId) -> Result<Option<Order>, LedgerError> {
        let row = sqlx::query_as::<_, OrderColumns>(
            "SELECT item, segment::bigint, buyer, quantity, state, (extract(epoch FROM expires_at) * 1000)::bigint AS expires_ms, version \
             FROM orders WHERE id = $1",
        );
        let row = row.bind(id.as_uuid()).fetch_optional(&self.pool).await?;
        row.map(|row| row.into_order(id)).transpose()
    }

    async fn rejected_among(&self, ids: &[OrderId]) -> Result<Vec<OrderId>, LedgerError> {
        let ids: Vec<_> = ids.iter().map(OrderId::as_uuid).collect();
        let rows = sqlx::query_scalar::<_, uuid::Uuid>("SELECT id FROM orders WHERE id = ANY($1) AND state = 'rejected'");
        Ok(rows.bind(ids).fetch_all(&self.pool).await?.into_iter().map(OrderId::from).collect())
    }

    async fn totals(&self, item: &ItemId) -> Result<Option<ItemTotals>, LedgerError> {
        let mut snapshot = self.pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let found = sqlx::query_as::<_, ItemColumns>(concat!("SELECT ", item_columns!(), " FROM items WHERE id = $1"));
        let Some(found) = found.bind(item.as_str()).fetch_optional(&mut *snapshot).await? else { return Ok(None) };
        let rows = sqlx::query_as::<_, SegmentColumns>(concat!("SELECT ", segment_columns!(), " FROM segments WHERE item = $1 ORDER BY 2"));
        let rows = rows.bind(item.as_str()).fetch_all(&mut *snapshot).await?;
        let held = sqlx::query_as::<_, (i64, i64)>(
            "SELECT segment::bigint, sum(quantity)::bigint FROM orders \
             WHERE id BETWEEN $2 AND $3 AND item = $1 AND state = 'held' GROUP BY segment",
        );
        let [first, last] = id_range(item.tag()).map(|id| id.as_uuid());
        let held = held.bind(item.as_str()).bind(first).bind(last).fetch_all(&mut *snapshot).await?;
        let states = sqlx::query_as::<_, (String, i64)>(
            "SELECT state, count(*) FROM orders WHERE id BETWEEN $2 AND $3 AND item = $1 GROUP BY state ORDER BY state",
        );
        let states = states.bind(item.as_str()).bind(first).bind(last).fetch_all(&mut *snapshot).await?;
        ItemTotals::new(found, rows, &held, states).map(Some)
    }

    async fn claim(&self, wanted: &[SegmentKey], at_most: usize) -> Result<Option<Box<dyn Claim>>, LedgerError> {
        recording::claim(&self.pool, wanted, at_most).await
    }
}

type Transaction = sqlx::Transaction<'static, Postgres>;
