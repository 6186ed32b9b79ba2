//! Claiming rows to repair them, on PostgreSQL.

use async_trait::async_trait;
use domain::{ItemId, Order, SegmentKey};
use sqlx::PgPool;

use super::{Transaction, item_columns, order_columns, recording::lock_rows, transfer_columns};
use crate::{
    LedgerError, PendingReturn, Repair, Transfer,
    columns::{FencedColumns, OrderColumns, ReturnColumns, TransferColumns},
    convert::{column, id_range},
    repair::open::{OpenRepair, Statements},
};

/// While Redis is being restored, the transaction is idle for longer than a recorder ever is.
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
    pool: &PgPool,
    segments: &[SegmentKey],
    token: u64,
) -> Result<Box<dyn Repair>, LedgerError> {
    let mut sorted = segments.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let item = sorted.first().ok_or(sqlx::Error::RowNotFound)?.item.clone();
    let mut transaction = pool.begin().await?;
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
    async fn orders(&mut self, item: &ItemId) -> Result<Vec<Order>, LedgerError> {
        let rows = sqlx::query_as::<_, OrderColumns>(concat!(
            "SELECT ",
            order_columns!(),
            " FROM orders WHERE id BETWEEN $2 AND $3 AND item = $1",
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
            "SELECT id, item, segment::bigint, buyer, quantity FROM returns WHERE item = $1",
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
            " FROM transfers WHERE item = $1"
        ));
        rows.bind(item.as_str())
            .fetch_all(&mut **self)
            .await?
            .into_iter()
            .map(Transfer::try_from)
            .collect()
    }
}
