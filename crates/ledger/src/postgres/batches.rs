//! The two statements of every batch, on PostgreSQL: an array for each column.

use std::collections::HashSet;

use domain::OrderId;
use sqlx::error::DatabaseError;
use uuid::Uuid;

use super::{Transaction, bind_events, bind_rows, id_value, sql::batches as sql};
use crate::{
    LedgerError,
    convert::{column, signed, unsigned},
    events::{EventRows, NewEvent},
    statements::{Expected, Move, NewOrders, bind_orders},
};

/// Inserts the orders, and returns the ids of those that existed.
pub(super) async fn insert(
    transaction: &mut Transaction,
    orders: &NewOrders<'_>,
    expected: Expected,
) -> Result<HashSet<OrderId>, LedgerError> {
    if expected == Expected::New {
        return insert_new(transaction, orders)
            .await
            .map(|()| HashSet::new());
    }
    let inserted = sqlx::query_as::<_, (i64, Option<Vec<Uuid>>)>(sql::INSERT_MISSING);
    let (_, inserted) = bind_orders!(inserted, orders)
        .bind(signed(orders.rows.len() as u64))
        .fetch_one(&mut **transaction)
        .await?;
    let existing = inserted.map(|inserted| orders.not_among(inserted));
    Ok(existing.unwrap_or_default())
}

async fn insert_new(
    transaction: &mut Transaction,
    orders: &NewOrders<'_>,
) -> Result<(), LedgerError> {
    let inserted = bind_orders!(sqlx::query(sql::INSERT), orders)
        .execute(&mut **transaction)
        .await;
    match inserted {
        Err(error)
            if error
                .as_database_error()
                .is_some_and(DatabaseError::is_unique_violation) =>
        {
            Err(LedgerError::Known)
        }
        inserted => Ok(inserted.map(drop)?),
    }
}

/// Updates the rows that nothing else has changed, and inserts the events.
pub(super) async fn compare_and_set(
    transaction: &mut Transaction,
    moves: &[Move],
    events: &[NewEvent],
) -> Result<Vec<usize>, LedgerError> {
    let events = EventRows::of(events);
    let moved = sqlx::query_scalar::<_, i64>(sql::COMPARE_AND_SET);
    let moved = bind_events!(moved, events)
        .bind(column(moves, |row| row.before.key.item.to_string()))
        .bind(column(moves, |row| i32::from(row.before.key.segment)))
        .bind(column(moves, |row| signed(row.before.version)))
        .bind(column(moves, |row| {
            row.before.checkpoint.map(|id| id.to_string())
        }))
        .bind(column(moves, |row| signed(row.after.allocated)))
        .bind(column(moves, |row| signed(row.after.available)))
        .bind(column(moves, |row| signed(row.after.held)))
        .bind(column(moves, |row| signed(row.after.confirmed)))
        .bind(column(moves, |row| signed(row.after.returning)))
        .bind(column(moves, |row| {
            row.after.checkpoint.map(|id| id.to_string())
        }))
        .bind(column(moves, |row| row.after.anchor))
        .bind(column(moves, |row| signed(row.after.fence)))
        .fetch_all(&mut **transaction)
        .await?;
    moved
        .into_iter()
        .map(|place| unsigned("place", place))
        .collect()
}
