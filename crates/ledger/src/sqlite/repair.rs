//! Claiming rows to repair them, on SQLite.

use async_trait::async_trait;
use domain::{ItemId, Memory, OrderId, SegmentKey, TransferId};
use sqlx::{SqliteExecutor, SqlitePool};
use uuid::Uuid;

use super::{
    SqliteLedger, Transaction, hex, hex_list, item_columns, json, recording::rows, transfer_columns,
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

/// `json_each` has a column `id` as well.
macro_rules! remembered_columns {
    () => {
        "orders.id AS id, segment, buyer, quantity, state, expires_at AS expires_ms, attempt"
    };
}

/// The transaction already holds the write lock: until it ends, no other transaction writes.
pub(super) async fn claim(
    store: &SqliteLedger,
    segments: &[SegmentKey],
    token: u64,
) -> Result<Box<dyn Repair>, LedgerError> {
    let mut sorted = segments.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut transaction = store.write().await?;
    let item = &sorted.first().ok_or(sqlx::Error::RowNotFound)?.item;
    let (rows, _) = rows(&mut transaction, &sorted, sorted.len()).await?;
    let found = sqlx::query_as::<_, FencedColumns>(concat!(
        "SELECT ",
        item_columns!(),
        ", fence FROM items WHERE id = ?"
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
        // CROSS JOIN fixes the join order: for each range its part of the index.
        let rows = sqlx::query_as::<_, RememberedColumns>(concat!(
            "SELECT ",
            remembered_columns!(),
            " FROM json_each(?2) AS wanted CROSS JOIN orders \
             ON orders.id BETWEEN unhex(wanted.value ->> 0) AND unhex(wanted.value ->> 1) AND orders.item = ?1 \
             ORDER BY orders.id",
        ));
        let ranges = column(ranges, |range| range.map(|id| hex(id.as_uuid())));
        let rows = rows
            .bind(item.as_str())
            .bind(json(&ranges)?)
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
            " FROM transfers WHERE item = ?1 AND state <> 'done' UNION SELECT ",
            transfer_columns!(),
            " FROM transfers WHERE id IN (SELECT unhex(value) FROM json_each(?2))"
        ));
        let ids = column(ids, |id| hex(id.as_uuid()));
        rows.bind(item.as_str())
            .bind(json(&ids)?)
            .fetch_all(&mut **self)
            .await?
            .into_iter()
            .map(Transfer::try_from)
            .collect()
    }
}

/// A page of what segments must remember of the item's orders.
pub(super) async fn memories(
    pool: &SqlitePool,
    item: &ItemId,
    after: Option<OrderId>,
    at_most: usize,
) -> Result<Page<Memory, OrderId>, LedgerError> {
    let rows = sqlx::query_as::<_, RememberedColumns>(concat!(
        "SELECT ",
        remembered_columns!(),
        " FROM orders WHERE id >= ?2 AND id > ?3 AND id <= ?4 AND item = ?1 ORDER BY orders.id LIMIT ?5",
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
    pool: &SqlitePool,
    item: &ItemId,
    after: Option<TransferId>,
    at_most: usize,
) -> Result<Page<Transfer, TransferId>, LedgerError> {
    let rows = sqlx::query_as::<_, TransferColumns>(concat!(
        "SELECT ",
        transfer_columns!(),
        " FROM transfers WHERE item = ? AND id > ? ORDER BY id LIMIT ?"
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
    executor: impl SqliteExecutor<'_>,
    ids: &[OrderId],
) -> Result<Vec<PendingReturn>, LedgerError> {
    let rows = sqlx::query_as::<_, ReturnColumns>(
        "SELECT id, item, segment, buyer, quantity FROM returns \
         WHERE id IN (SELECT unhex(value) FROM json_each(?))",
    );
    rows.bind(hex_list(ids)?)
        .fetch_all(executor)
        .await?
        .into_iter()
        .map(PendingReturn::try_from)
        .collect()
}
