//! What a step of orders locks and counts, on PostgreSQL: an array for each column.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use domain::{OrderId, SegmentKey};

use super::{Transaction, bind_events, sql::step_rows as sql};
use crate::{
    LedgerError,
    columns::segment_key,
    convert::column,
    events::{EventRows, NewEvent},
    life::transition::{BoundPayment, Moved},
};

/// Limits how long each later statement of the transaction waits for a lock.
pub(super) async fn wait_briefly(transaction: &mut Transaction) -> Result<(), LedgerError> {
    sqlx::query(sql::WAIT_BRIEFLY)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Locks the rows of the segments, and returns those that are archived.
pub(super) async fn lock_segments(
    transaction: &mut Transaction,
    keys: &BTreeSet<SegmentKey>,
) -> Result<HashSet<SegmentKey>, LedgerError> {
    let locked = sqlx::query_as::<_, (String, i64, bool)>(sql::LOCK_SEGMENTS)
        .bind(column(keys, |key| key.item.to_string()))
        .bind(column(keys, |key| i32::from(key.segment)));
    let locked = locked.fetch_all(&mut **transaction).await?;
    let archived = locked.into_iter().filter(|(_, _, archived)| *archived);
    archived
        .map(|(item, segment, _)| segment_key(&item, segment))
        .collect()
}

/// Notes the order of each payment that has none, and returns the rows of all.
pub(super) async fn bind_payments(
    transaction: &mut Transaction,
    payments: &BTreeMap<&str, OrderId>,
) -> Result<Vec<BoundPayment>, LedgerError> {
    let bound = sqlx::query_as::<_, BoundPayment>(sql::BIND_PAYMENTS)
        .bind(column(payments, |(payment, _)| payment.to_string()))
        .bind(column(payments, |(_, order)| order.as_uuid()));
    Ok(bound.fetch_all(&mut **transaction).await?)
}

/// Moves the counters, and inserts the events.
pub(super) async fn count(
    transaction: &mut Transaction,
    moved: &BTreeMap<SegmentKey, Moved>,
    events: &[NewEvent],
) -> Result<(), LedgerError> {
    let events = EventRows::of(events);
    bind_events!(sqlx::query(sql::COUNT), events)
        .bind(column(moved, |(key, _)| key.item.to_string()))
        .bind(column(moved, |(key, _)| i32::from(key.segment)))
        .bind(column(moved, |(_, moved)| moved.held))
        .bind(column(moved, |(_, moved)| moved.confirmed))
        .bind(column(moved, |(_, moved)| moved.returning))
        .bind(column(moved, |(_, moved)| moved.available))
        .execute(&mut **transaction)
        .await?;
    Ok(())
}
