//! Claiming segments and recording them, on SQLite.

use std::collections::HashSet;

use async_trait::async_trait;
use domain::{OrderId, SegmentKey};

use super::{Transaction, segment_columns};
use crate::{
    Claim, LedgerError, Recorded, SegmentReplay, SegmentRow,
    convert::{SegmentColumns, signed, unreadable},
    recording::{self, Move, NewOrders, Statements},
};

struct SqliteClaim {
    transaction: Transaction,
    rows: Vec<SegmentRow>,
}

/// The transaction holds the write lock already.
pub(super) async fn claim(
    mut transaction: Transaction,
    wanted: &[SegmentKey],
    at_most: usize,
) -> Result<Option<Box<dyn Claim>>, LedgerError> {
    let wanted: Vec<_> = wanted.iter().map(|key| (key.item.as_str(), key.segment)).collect();
    let rows = sqlx::query_as::<_, SegmentColumns>(concat!(
        "SELECT ",
        segment_columns!(),
        " FROM json_each(?) AS wanted JOIN segments ON item = wanted.value ->> 0 AND segment = wanted.value ->> 1 \
           ORDER BY wanted.key LIMIT ?",
    ));
    let rows = rows.bind(json(&wanted)?).bind(signed(at_most as u64)).fetch_all(&mut *transaction).await?;
    let rows: Vec<_> = rows.into_iter().map(SegmentRow::try_from).collect::<Result<_, _>>()?;
    if rows.is_empty() {
        return Ok(None);
    }
    Ok(Some(Box::new(SqliteClaim { transaction, rows })))
}

#[async_trait]
impl Claim for SqliteClaim {
    fn rows(&self) -> &[SegmentRow] {
        &self.rows
    }

    async fn record(self: Box<Self>, replays: Vec<SegmentReplay>) -> Result<Vec<Recorded>, LedgerError> {
        recording::record(self.transaction, replays).await
    }

    async fn release(self: Box<Self>) {
        self.transaction.roll_back().await;
    }
}

/// One statement for a batch, with the batch as one JSON value: a statement per order would cost several times as much.
#[async_trait]
impl Statements for Transaction {
    async fn insert(&mut self, orders: &NewOrders) -> Result<HashSet<OrderId>, LedgerError> {
        let rows: Vec<_> = (0..orders.ids.len())
            .map(|at| {
                let id = orders.ids[at].as_uuid().simple().to_string();
                (id, &orders.items[at], orders.segments[at], &orders.buyers[at], orders.quantities[at], orders.expires_ms[at])
            })
            .collect();
        // `WHERE true` keeps SQLite from reading ON CONFLICT as part of a join.
        let inserted = sqlx::query_scalar::<_, Vec<u8>>(
            "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) \
             SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, 'held', value ->> 5 FROM json_each(?) \
             WHERE true ON CONFLICT (id) DO NOTHING RETURNING id",
        );
        let inserted = inserted.bind(json(&rows)?).fetch_all(&mut **self).await?;
        if inserted.len() == orders.ids.len() {
            return Ok(HashSet::new());
        }
        let inserted: HashSet<_> = inserted.iter().map(|id| order_id(id)).collect::<Result<_, _>>()?;
        Ok(orders.ids.iter().copied().filter(|id| !inserted.contains(id)).collect())
    }

    async fn reject(&mut self, orders: &[OrderId]) -> Result<(), LedgerError> {
        let rejected = sqlx::query("UPDATE orders SET state = 'rejected' WHERE id IN (SELECT unhex(value) FROM json_each(?))");
        rejected.bind(hex_list(orders)?).execute(&mut **self).await?;
        Ok(())
    }

    async fn compare_and_set(&mut self, moves: &[Move]) -> Result<Vec<usize>, LedgerError> {
        let mut moved = Vec::with_capacity(moves.len());
        for (place, Move { before, after }) in moves.iter().enumerate() {
            let row = sqlx::query(
                "UPDATE segments SET available = ?, held = ?, confirmed = ?, checkpoint = ?, anchor = ?, version = version + 1 \
                 WHERE item = ? AND segment = ? AND version = ? AND checkpoint IS ?",
            )
            .bind(signed(after.available))
            .bind(signed(after.held))
            .bind(signed(after.confirmed))
            .bind(after.checkpoint.map(|id| id.to_string()))
            .bind(after.anchor)
            .bind(before.key.item.as_str())
            .bind(i32::from(before.key.segment))
            .bind(signed(before.version))
            .bind(before.checkpoint.map(|id| id.to_string()));
            if row.execute(&mut **self).await?.rows_affected() == 1 {
                moved.push(place);
            }
        }
        Ok(moved)
    }

    async fn commit(self) -> Result<(), LedgerError> {
        Ok(Transaction::commit(self).await?)
    }

    async fn roll_back(self) {
        // If the connection is gone, so is the transaction.
        let _ = self.rollback().await;
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, LedgerError> {
    serde_json::to_string(value).map_err(|error| LedgerError::Database(sqlx::Error::Encode(error.into())))
}

pub(super) fn hex_list(ids: &[OrderId]) -> Result<String, LedgerError> {
    json(&ids.iter().map(|id| id.as_uuid().simple().to_string()).collect::<Vec<_>>())
}

pub(super) fn order_id(bytes: &[u8]) -> Result<OrderId, LedgerError> {
    bytes.try_into().map(OrderId::from_bytes).map_err(|_| unreadable("orders.id", format!("{bytes:?}")))
}
