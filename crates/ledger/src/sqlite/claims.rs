//! Claims of segments, on SQLite: the write lock.

use async_trait::async_trait;
use domain::SegmentKey;

use super::{SqliteLedger, Transaction, json, sql::claims as sql};
use crate::{
    Claim, LedgerError, Recorded, SegmentReplay, SegmentRow,
    columns::{ClaimedColumns, claimed},
    convert::column,
    recording,
    statements::{Expected, Shapes},
    transaction::Transact,
};

struct SqliteClaim {
    transaction: Transaction,
    rows: Vec<SegmentRow>,
    shapes: Shapes,
}

/// The transaction holds the write lock from its start (`BEGIN IMMEDIATE`).
pub(super) async fn claim(
    store: &SqliteLedger,
    wanted: &[SegmentKey],
    at_most: usize,
) -> Result<Option<Box<dyn Claim>>, LedgerError> {
    let mut transaction = store.write().await?;
    let (rows, shapes) = rows(&mut transaction, wanted, at_most).await?;
    if rows.is_empty() {
        transaction.roll_back().await;
        return Ok(None);
    }
    Ok(Some(Box::new(SqliteClaim {
        transaction,
        rows,
        shapes,
    })))
}

/// The first `at_most` of the wanted rows that exist.
async fn rows(
    transaction: &mut Transaction,
    wanted: &[SegmentKey],
    at_most: usize,
) -> Result<(Vec<SegmentRow>, Shapes), LedgerError> {
    let wanted = column(wanted, |key| (key.item.as_str(), key.segment));
    let rows = sqlx::query_as::<_, ClaimedColumns>(sql::ROWS).bind(json(&wanted)?);
    let mut rows = rows.fetch_all(&mut **transaction).await?;
    rows.truncate(at_most);
    claimed(rows)
}

/// The rows of these segments.
pub(super) async fn lock_rows(
    transaction: &mut Transaction,
    sorted: &[SegmentKey],
) -> Result<Vec<SegmentRow>, LedgerError> {
    let (rows, _) = rows(transaction, sorted, sorted.len()).await?;
    Ok(rows)
}

/// The transaction already holds the write lock: until it ends, no other transaction writes.
pub(super) async fn lock_for_repair(
    transaction: &mut Transaction,
    sorted: &[SegmentKey],
) -> Result<Vec<SegmentRow>, LedgerError> {
    lock_rows(transaction, sorted).await
}

#[async_trait]
impl Claim for SqliteClaim {
    fn rows(&self) -> &[SegmentRow] {
        &self.rows
    }

    async fn record(
        self: Box<Self>,
        replays: Vec<SegmentReplay>,
    ) -> Result<Vec<Recorded>, LedgerError> {
        recording::record(self.transaction, &replays, &self.shapes, Expected::Any).await
    }

    async fn release(self: Box<Self>) {
        self.transaction.roll_back().await;
    }
}
