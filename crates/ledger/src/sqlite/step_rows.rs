//! What a step of orders reads and counts, on SQLite.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use domain::{OrderId, SegmentKey};

use super::{Transaction, hex, json, sql::step_rows as sql};
use crate::{
    LedgerError,
    columns::segment_key,
    convert::column,
    events::{NewEvent, Statements as _},
    life::transition::{BoundPayment, Moved},
};

/// A transaction has locked all that there is when it begins.
#[expect(clippy::unused_async, reason = "PostgreSQL has to ask its server")]
pub(super) async fn wait_briefly(_: &mut Transaction) -> Result<(), LedgerError> {
    Ok(())
}

/// Returns those of the segments that are archived.
pub(super) async fn lock_segments(
    transaction: &mut Transaction,
    keys: &BTreeSet<SegmentKey>,
) -> Result<HashSet<SegmentKey>, LedgerError> {
    let keys = json(&column(keys, |key| (key.item.as_str(), key.segment)))?;
    let rows = sqlx::query_as::<_, (String, i64)>(sql::ARCHIVED_AMONG);
    let rows = rows.bind(keys).fetch_all(&mut **transaction).await?;
    rows.into_iter()
        .map(|(item, segment)| segment_key(&item, segment))
        .collect()
}

/// Notes the order of each payment that has none, and returns the rows of all.
pub(super) async fn bind_payments(
    transaction: &mut Transaction,
    payments: &BTreeMap<&str, OrderId>,
) -> Result<Vec<BoundPayment>, LedgerError> {
    let rows = json(&column(payments, |(payment, order)| {
        (*payment, hex(order.as_uuid()))
    }))?;
    sqlx::query(sql::INSERT_PAYMENTS)
        .bind(&rows)
        .execute(&mut **transaction)
        .await?;
    let bound = sqlx::query_as::<_, BoundPayment>(sql::PAYMENTS);
    Ok(bound.bind(&rows).fetch_all(&mut **transaction).await?)
}

/// Moves the counters, one statement for each segment, and inserts the events.
pub(super) async fn count(
    transaction: &mut Transaction,
    moved: &BTreeMap<SegmentKey, Moved>,
    events: &[NewEvent],
) -> Result<(), LedgerError> {
    if !events.is_empty() {
        transaction.add_events(events).await?;
    }
    for (key, moved) in moved {
        sqlx::query(sql::COUNT)
            .bind(moved.available)
            .bind(moved.held)
            .bind(moved.confirmed)
            .bind(moved.returning)
            .bind(key.item.as_str())
            .bind(i32::from(key.segment))
            .execute(&mut **transaction)
            .await?;
    }
    Ok(())
}
