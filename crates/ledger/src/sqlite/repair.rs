//! Claiming rows to repair them, on SQLite.

use async_trait::async_trait;
use domain::{ItemId, Order, SegmentKey};

use super::{Transaction, item_columns, order_columns, recording::rows, transfer_columns};
use crate::{
    LedgerError, PendingReturn, Repair, Transfer,
    columns::{FencedColumns, OrderColumns, ReturnColumns, TransferColumns},
    convert::id_range,
    repair::open::{OpenRepair, Statements},
};

/// The transaction already holds the write lock: until it ends, no other transaction writes.
pub(super) async fn claim(
    mut transaction: Transaction,
    segments: &[SegmentKey],
    token: u64,
) -> Result<Box<dyn Repair>, LedgerError> {
    let mut sorted = segments.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
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
    async fn orders(&mut self, item: &ItemId) -> Result<Vec<Order>, LedgerError> {
        let rows = sqlx::query_as::<_, OrderColumns>(concat!(
            "SELECT ",
            order_columns!(),
            " FROM orders WHERE id BETWEEN ?2 AND ?3 AND item = ?1",
        ));
        let [first, last] = id_range(item.tag()).map(|id| id.as_uuid());
        let rows = rows
            .bind(item.as_str())
            .bind(first)
            .bind(last)
            .fetch_all(&mut **self)
            .await?;
        rows.into_iter().map(Order::try_from).collect()
    }

    async fn returns(&mut self, item: &ItemId) -> Result<Vec<PendingReturn>, LedgerError> {
        let rows = sqlx::query_as::<_, ReturnColumns>(
            "SELECT id, item, segment, buyer, quantity FROM returns WHERE item = ?",
        );
        rows.bind(item.as_str())
            .fetch_all(&mut **self)
            .await?
            .into_iter()
            .map(PendingReturn::try_from)
            .collect()
    }

    async fn transfers(&mut self, item: &ItemId) -> Result<Vec<Transfer>, LedgerError> {
        let rows = sqlx::query_as::<_, TransferColumns>(concat!(
            "SELECT ",
            transfer_columns!(),
            " FROM transfers WHERE item = ?"
        ));
        rows.bind(item.as_str())
            .fetch_all(&mut **self)
            .await?
            .into_iter()
            .map(Transfer::try_from)
            .collect()
    }
}
