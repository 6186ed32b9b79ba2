//! The two statements of every batch, on SQLite.

use std::collections::HashSet;

use domain::OrderId;
use uuid::Uuid;

use super::{Transaction, bind_rows, id_value, sql::batches as sql};
use crate::{
    LedgerError,
    convert::signed,
    events::{NewEvent, Statements as _},
    statements::{Expected, Move, NewOrders, bind_orders},
};

/// Inserts the orders, and returns the ids of those that existed.
pub(super) async fn insert(
    transaction: &mut Transaction,
    orders: &NewOrders<'_>,
    _: Expected,
) -> Result<HashSet<OrderId>, LedgerError> {
    let inserted = sqlx::query_scalar::<_, Uuid>(sql::INSERT);
    let inserted = bind_orders!(inserted, orders)
        .fetch_all(&mut **transaction)
        .await?;
    if inserted.len() == orders.rows.len() {
        return Ok(HashSet::new());
    }
    Ok(orders.not_among(inserted))
}

/// Updates the rows that nothing else has changed, one statement for each, and inserts the events.
pub(super) async fn compare_and_set(
    transaction: &mut Transaction,
    moves: &[Move],
    events: &[NewEvent],
) -> Result<Vec<usize>, LedgerError> {
    if !events.is_empty() {
        transaction.add_events(events).await?;
    }
    let mut moved = Vec::with_capacity(moves.len());
    for (place, Move { before, after }) in moves.iter().enumerate() {
        let row = sqlx::query(sql::COMPARE_AND_SET)
            .bind(signed(after.allocated))
            .bind(signed(after.available))
            .bind(signed(after.held))
            .bind(signed(after.confirmed))
            .bind(signed(after.returning))
            .bind(after.checkpoint.map(|id| id.to_string()))
            .bind(after.anchor)
            .bind(signed(after.fence))
            .bind(before.key.item.as_str())
            .bind(i32::from(before.key.segment))
            .bind(signed(before.version))
            .bind(before.checkpoint.map(|id| id.to_string()));
        if row.execute(&mut **transaction).await?.rows_affected() == 1 {
            moved.push(place);
        }
    }
    Ok(moved)
}
