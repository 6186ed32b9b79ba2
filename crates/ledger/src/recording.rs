//! Recording, the same for every database: insert, decide, move the checkpoints, commit.

use std::collections::HashSet;

use async_trait::async_trait;
use domain::{Change, OrderId};

use crate::{LedgerError, Recorded, SegmentReplay, SegmentRow, replay::replay};

/// Orders to insert, by column. No id stands twice.
#[derive(Default)]
pub(crate) struct NewOrders {
    pub ids: Vec<OrderId>,
    pub items: Vec<String>,
    pub segments: Vec<i32>,
    pub buyers: Vec<String>,
    pub quantities: Vec<i64>,
    pub expires_ms: Vec<i64>,
}

impl NewOrders {
    fn of(replays: &[SegmentReplay]) -> Self {
        let mut orders = Self::default();
        let mut seen = HashSet::new();
        for SegmentReplay { row, entries } in replays {
            for entry in entries {
                let Change::Taken { expires_at, orders: taken } = &entry.change else { continue };
                for order in taken.iter().filter(|order| seen.insert(order.id)) {
                    orders.ids.push(order.id);
                    orders.items.push(row.key.item.to_string());
                    orders.segments.push(row.key.segment.into());
                    orders.buyers.push(order.buyer.to_string());
                    orders.quantities.push(order.quantity.get().into());
                    orders.expires_ms.push(expires_at.as_millisecond());
                }
            }
        }
        orders
    }
}

/// A row before and after.
pub(crate) struct Move {
    pub before: SegmentRow,
    pub after: SegmentRow,
}

/// The statements of a recording transaction.
#[async_trait]
pub(crate) trait Statements: Send {
    /// Inserts the orders as `held`, but for those that are there already. Returns these.
    async fn insert(&mut self, orders: &NewOrders) -> Result<HashSet<OrderId>, LedgerError>;

    /// Makes orders that were just inserted `rejected`.
    async fn reject(&mut self, orders: &[OrderId]) -> Result<(), LedgerError>;

    /// Moves every row whose checkpoint and version are still those of `before`. Returns how many.
    async fn compare_and_set(&mut self, moves: &[Move]) -> Result<u64, LedgerError>;

    /// Commits. Dropped without, everything is rolled back.
    async fn commit(self) -> Result<(), LedgerError>;
}

/// Records the replays in the transaction.
pub(crate) async fn record(mut transaction: impl Statements, replays: Vec<SegmentReplay>) -> Result<Vec<Recorded>, LedgerError> {
    let orders = NewOrders::of(&replays);
    let known = if orders.ids.is_empty() { HashSet::new() } else { transaction.insert(&orders).await? };
    let mut seen = known;
    let (mut moves, mut recorded) = (Vec::with_capacity(replays.len()), Vec::with_capacity(replays.len()));
    for SegmentReplay { row, entries } in replays {
        // What the ledger had is seen from the start; what comes again in this batch is seen by then.
        let replayed = replay(&row, &entries, |id| seen.insert(id))?;
        recorded.push(Recorded {
            key: row.key.clone(),
            checkpoint: replayed.row.checkpoint.ok_or_else(|| LedgerError::Diverged(row.key.clone()))?,
            held: replayed.held,
            rejected: replayed.rejected,
            repeated: replayed.repeated,
        });
        moves.push(Move { before: row, after: replayed.row });
    }
    let rejected: Vec<OrderId> = recorded.iter().flat_map(|recorded| recorded.rejected.iter().copied()).collect();
    if !rejected.is_empty() {
        transaction.reject(&rejected).await?;
    }
    if transaction.compare_and_set(&moves).await? != moves.len() as u64 {
        let first = moves.swap_remove(0);
        return Err(LedgerError::Superseded(first.before.key));
    }
    transaction.commit().await?;
    Ok(recorded)
}
