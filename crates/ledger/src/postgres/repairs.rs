//! The steps of a repair that PostgreSQL takes in a way of its own.

use domain::{ItemId, OrderId, SegmentKey};

use super::{Transaction, recording::lock_rows, sql::repair as sql};
use crate::{
    LedgerError, SegmentRow, columns::RememberedColumns, convert::column,
    repair::memory::RememberedOrder,
};

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

/// Locks the rows of these segments, which are in order, against recorders and other repairs.
pub(super) async fn lock(
    transaction: &mut Transaction,
    sorted: &[SegmentKey],
) -> Result<Vec<SegmentRow>, LedgerError> {
    sqlx::query(REPAIR_IDLE_TIMEOUT)
        .execute(&mut **transaction)
        .await?;
    let turns = sqlx::query(WAIT_FOR_TURNS);
    let turns = turns
        .bind(column(sorted, |key| key.item.to_string()))
        .bind(column(sorted, |key| i32::from(key.segment)));
    turns.execute(&mut **transaction).await?;
    lock_rows(transaction, sorted).await
}

/// The orders of the item whose ids are in these ranges.
pub(super) async fn orders_in(
    transaction: &mut Transaction,
    item: &ItemId,
    ranges: &[[OrderId; 2]],
) -> Result<Vec<RememberedOrder>, LedgerError> {
    let rows = sqlx::query_as::<_, RememberedColumns>(sql::ORDERS_IN)
        .bind(item.as_str())
        .bind(column(ranges, |[low, _]| low.as_uuid()))
        .bind(column(ranges, |[_, high]| high.as_uuid()))
        .fetch_all(&mut **transaction)
        .await?;
    rows.into_iter().map(RememberedOrder::try_from).collect()
}
