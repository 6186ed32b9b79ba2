//! Claiming rows to repair them, on PostgreSQL.

use async_trait::async_trait;
use domain::{ItemId, Memory, OrderId, SegmentKey, TransferId};
use sqlx::{PgExecutor, PgPool};
use uuid::Uuid;

use super::{
    PostgresLedger, Transaction, connections, item_columns, recording::lock_rows, transfer_columns,
};
use crate::{
    LedgerError, Page, PendingReturn, Repair, Transfer,
    columns::{FencedColumns, RememberedColumns, ReturnColumns, TransferColumns},
    convert::{column, id_range, signed},
    repair::{
        memory::{self, RememberedOrder, ids_of_attempts},
        open::{OpenRepair, Statements},
    },
};

macro_rules! remembered_columns {
    () => {
        "id, segment::bigint, buyer, quantity, state, (extract(epoch FROM expires_at) * 1000)::bigint AS expires_ms, attempt::bigint"
    };
}

/// While Redis gets what the outboxes have, the transaction is idle for longer than a recorder ever
/// is. The orders that were recorded before are restored without a transaction.
const REPAIR_IDLE_TIMEOUT: &str = "SET LOCAL idle_in_transaction_session_timeout = 60000";

/// Takes the turns first, waiting for them. Recorders do not wait for turns: from then on they skip
/// these segments, instead of waiting for the rows.
const WAIT_FOR_TURNS: &str = concat!(
    "SELECT pg_advisory_xact_lock(turn) FROM ( \
        SELECT ",
    super::recording::turn!("of_item", "number"),
    " AS turn FROM UNNEST($1::text[], $2::integer[]) WITH ORDINALITY AS wanted (of_item, number, place) ORDER BY place OFFSET 0) AS turns"
);

pub(super) async fn claim(
    store: &PostgresLedger,
    segments: &[SegmentKey],
    token: u64,
) -> Result<Box<dyn Repair>, LedgerError> {
    let mut sorted = segments.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let item = sorted.first().ok_or(sqlx::Error::RowNotFound)?.item.clone();
    let mut transaction = connections::begin(&store.pool).await?;
    sqlx::query(REPAIR_IDLE_TIMEOUT)
        .execute(&mut *transaction)
        .await?;
    let turns = sqlx::query(WAIT_FOR_TURNS);
    let turns = turns
        .bind(column(&sorted, |key| key.item.to_string()))
        .bind(column(&sorted, |key| i32::from(key.segment)));
    turns.execute(&mut *transaction).await?;
    let rows = lock_rows(&mut transaction, &sorted).await?;
    let found = sqlx::query_as::<_, FencedColumns>(concat!(
        "SELECT ",
        item_columns!(),
        ", fence FROM items WHERE id = $1"
    ));
    let item = found
        .bind(item.as_str())
        .fetch_one(&mut *transaction)
        .await?
        .try_into()?;
    Ok(Box::new(
        OpenRepair::new(transaction, item, token, rows).await?,
    ))
}

#[async_trait]
impl Statements for Transaction {
    async fn orders_in(
        &mut self,
        item: &ItemId,
        ranges: &[[OrderId; 2]],
    ) -> Result<Vec<RememberedOrder>, LedgerError> {
        let rows = sqlx::query_as::<_, RememberedColumns>(concat!(
            "SELECT ",
            remembered_columns!(),
            " FROM UNNEST($2::uuid[], $3::uuid[]) AS wanted (low, high) \
             JOIN orders ON id BETWEEN low AND high AND item = $1 ORDER BY id",
        ));
        let rows = rows
            .bind(item.as_str())
            .bind(column(ranges, |[low, _]| low.as_uuid()))
            .bind(column(ranges, |[_, high]| high.as_uuid()))
            .fetch_all(&mut **self)
            .await?;
        rows.into_iter().map(RememberedOrder::try_from).collect()
    }

    async fn returns(&mut self, ids: &[OrderId]) -> Result<Vec<PendingReturn>, LedgerError> {
        returns(&mut **self, ids).await
    }

    async fn transfers(
        &mut self,
        item: &ItemId,
        ids: &[TransferId],
    ) -> Result<Vec<Transfer>, LedgerError> {
        // Two branches, each with its index.
        let rows = sqlx::query_as::<_, TransferColumns>(concat!(
            "SELECT ",
            transfer_columns!(),
            " FROM transfers WHERE item = $1 AND state <> 'done' UNION SELECT ",
            transfer_columns!(),
            " FROM transfers WHERE id = ANY($2)"
        ));
        rows.bind(item.as_str())
            .bind(column(ids, TransferId::as_uuid))
            .fetch_all(&mut **self)
            .await?
            .into_iter()
            .map(Transfer::try_from)
            .collect()
    }
}

/// A page of what segments must remember of the item's orders. `pool` is the one of lists: its
/// plans read the rows of the page and no others.
pub(super) async fn memories(
    pool: &PgPool,
    item: &ItemId,
    after: Option<OrderId>,
    at_most: usize,
) -> Result<Page<Memory, OrderId>, LedgerError> {
    let rows = sqlx::query_as::<_, RememberedColumns>(concat!(
        "SELECT ",
        remembered_columns!(),
        " FROM orders WHERE id >= $2 AND id > $3 AND id <= $4 AND item = $1 ORDER BY id LIMIT $5",
    ));
    let [first, last] = id_range(item.tag());
    let rows = rows
        .bind(item.as_str())
        .bind(after.unwrap_or(first).as_uuid())
        .bind(after.map_or(Uuid::nil(), |after| after.as_uuid()))
        .bind(last.as_uuid())
        .bind(signed(at_most as u64 + 1))
        .fetch_all(pool)
        .await?;
    let orders: Vec<_> = rows
        .into_iter()
        .map(RememberedOrder::try_from)
        .collect::<Result<_, _>>()?;
    let page = Page::cut(orders, at_most, |order| order.id);
    let returns = returns(pool, &ids_of_attempts(&page.rows)).await?;
    Ok(Page {
        rows: memory::memories(&page.rows, returns),
        next: page.next,
    })
}

/// A page of the item's transfers.
pub(super) async fn transfers_of(
    pool: &PgPool,
    item: &ItemId,
    after: Option<TransferId>,
    at_most: usize,
) -> Result<Page<Transfer, TransferId>, LedgerError> {
    let rows = sqlx::query_as::<_, TransferColumns>(concat!(
        "SELECT ",
        transfer_columns!(),
        " FROM transfers WHERE item = $1 AND id > $2 ORDER BY id LIMIT $3"
    ));
    let rows = rows
        .bind(item.as_str())
        .bind(after.map_or(Uuid::nil(), |after| after.as_uuid()))
        .bind(signed(at_most as u64 + 1))
        .fetch_all(pool)
        .await?;
    let transfers: Vec<_> = rows
        .into_iter()
        .map(Transfer::try_from)
        .collect::<Result<_, _>>()?;
    Ok(Page::cut(transfers, at_most, |transfer| transfer.id))
}

async fn returns(
    executor: impl PgExecutor<'_>,
    ids: &[OrderId],
) -> Result<Vec<PendingReturn>, LedgerError> {
    let rows = sqlx::query_as::<_, ReturnColumns>(
        "SELECT id, item, segment::bigint, buyer, quantity FROM returns WHERE id = ANY($1)",
    );
    rows.bind(column(ids, OrderId::as_uuid))
        .fetch_all(executor)
        .await?
        .into_iter()
        .map(PendingReturn::try_from)
        .collect()
}
