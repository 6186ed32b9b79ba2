//! Claiming rows to repair them: the statements, for either database.

use async_trait::async_trait;
use domain::{ItemId, Memory, OrderId, SegmentKey, TransferId};
use uuid::Uuid;

use super::{
    Connection, Pool, Store, Transaction, begin, bind_rows, claims, id_list, id_value,
    listing::page, sql::repair as sql,
};
use crate::{
    LedgerError, Page, PendingReturn, Repair, Transfer,
    columns::{FencedColumns, RememberedColumns, ReturnColumns, TransferColumns},
    convert::{column, id_range},
    repair::{
        memory::{self, RememberedOrder, ids_of_attempts},
        open::{OpenRepair, Statements},
    },
};

pub(super) async fn claim(
    store: &Store,
    segments: &[SegmentKey],
    token: u64,
) -> Result<Box<dyn Repair>, LedgerError> {
    let mut sorted = segments.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let item = &sorted.first().ok_or(sqlx::Error::RowNotFound)?.item;
    let mut transaction = begin(store).await?;
    let rows = claims::lock_for_repair(&mut transaction, &sorted).await?;
    let item = sqlx::query_as::<_, FencedColumns>(sql::ITEM)
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
        let rows = sqlx::query_as::<_, RememberedColumns>(sql::ORDERS_IN).bind(item.as_str());
        let rows = bind_rows!(rows, ranges, |range| (
            id_value(range[0].as_uuid()),
            id_value(range[1].as_uuid())
        ));
        let rows = rows.fetch_all(&mut **self).await?;
        rows.into_iter().map(RememberedOrder::try_from).collect()
    }

    async fn returns(&mut self, ids: &[OrderId]) -> Result<Vec<PendingReturn>, LedgerError> {
        returns(self, ids).await
    }

    async fn transfers(
        &mut self,
        item: &ItemId,
        ids: &[TransferId],
    ) -> Result<Vec<Transfer>, LedgerError> {
        sqlx::query_as::<_, TransferColumns>(sql::TRANSFERS)
            .bind(item.as_str())
            .bind(id_list(column(ids, |id| id.as_uuid()))?)
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
    pool: &Pool,
    item: &ItemId,
    after: Option<OrderId>,
    at_most: usize,
) -> Result<Page<Memory, OrderId>, LedgerError> {
    let [first, last] = id_range(item.tag());
    let orders = sqlx::query_as::<_, RememberedColumns>(sql::MEMORIES)
        .bind(item.as_str())
        .bind(after.unwrap_or(first).as_uuid())
        .bind(after.map_or(Uuid::nil(), |after| after.as_uuid()))
        .bind(last.as_uuid());
    let page = page(pool, orders, at_most, |order: &RememberedOrder| order.id).await?;
    let ids = ids_of_attempts(&page.rows);
    let mut connection = pool.acquire().await?;
    let returns = returns(&mut connection, &ids).await?;
    Ok(Page {
        rows: memory::memories(&page.rows, returns),
        next: page.next,
    })
}

/// A page of the item's transfers.
pub(super) async fn transfers_of(
    pool: &Pool,
    item: &ItemId,
    after: Option<TransferId>,
    at_most: usize,
) -> Result<Page<Transfer, TransferId>, LedgerError> {
    let transfers = sqlx::query_as::<_, TransferColumns>(sql::TRANSFERS_OF)
        .bind(item.as_str())
        .bind(after.map_or(Uuid::nil(), |after| after.as_uuid()));
    page(pool, transfers, at_most, |transfer: &Transfer| transfer.id).await
}

async fn returns(
    connection: &mut Connection,
    ids: &[OrderId],
) -> Result<Vec<PendingReturn>, LedgerError> {
    sqlx::query_as::<_, ReturnColumns>(sql::RETURNS)
        .bind(id_list(column(ids, |id| id.as_uuid()))?)
        .fetch_all(connection)
        .await?
        .into_iter()
        .map(PendingReturn::try_from)
        .collect()
}
