//! The steps of a repair that SQLite takes in a way of its own.

use domain::{ItemId, OrderId, SegmentKey};

use super::{Transaction, hex, json, recording::rows, sql::repair as sql};
use crate::{
    LedgerError, SegmentRow, columns::RememberedColumns, convert::column,
    repair::memory::RememberedOrder,
};

/// The transaction already holds the write lock: until it ends, no other transaction writes.
pub(super) async fn lock(
    transaction: &mut Transaction,
    sorted: &[SegmentKey],
) -> Result<Vec<SegmentRow>, LedgerError> {
    let (rows, _) = rows(transaction, sorted, sorted.len()).await?;
    Ok(rows)
}

/// The orders of the item whose ids are in these ranges.
pub(super) async fn orders_in(
    transaction: &mut Transaction,
    item: &ItemId,
    ranges: &[[OrderId; 2]],
) -> Result<Vec<RememberedOrder>, LedgerError> {
    let ranges = column(ranges, |range| range.map(|id| hex(id.as_uuid())));
    let rows = sqlx::query_as::<_, RememberedColumns>(sql::ORDERS_IN)
        .bind(item.as_str())
        .bind(json(&ranges)?)
        .fetch_all(&mut **transaction)
        .await?;
    rows.into_iter().map(RememberedOrder::try_from).collect()
}
