//! Recording, the same for every database: insert, decide, move the checkpoints, commit.

use std::collections::HashSet;

use async_trait::async_trait;
use domain::{Change, OrderId, SegmentKey, TakenOrder};

use crate::{LedgerError, Recorded, SegmentReplay, SegmentRow, replay::replay};

/// Orders to insert, by column, sorted by id. No id stands twice.
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
    /// In one order for everybody: two recorders that meet the same orders in different segments then wait for each other, but never in
    /// a circle. It also walks the index from left to right.
    fn of(replays: &[SegmentReplay]) -> Self {
        let mut rows = Self::rows(replays);
        rows.sort_unstable_by_key(|row| row.order.id);
        let mut orders = Self::default();
        for row in rows {
            orders.ids.push(row.order.id);
            orders.items.push(row.key.item.to_string());
            orders.segments.push(row.key.segment.into());
            orders.buyers.push(row.order.buyer.to_string());
            orders.quantities.push(row.order.quantity.get().into());
            orders.expires_ms.push(row.expires_ms);
        }
        orders
    }

    /// An order that stands twice counts where it stands first, as in the replay.
    fn rows(replays: &[SegmentReplay]) -> Vec<NewOrder<'_>> {
        let mut rows = Vec::new();
        let mut seen = HashSet::new();
        for SegmentReplay { row, entries } in replays {
            for entry in entries {
                let Change::Taken { expires_at, orders } = &entry.change else { continue };
                let expires_ms = expires_at.as_millisecond();
                let fresh = orders.iter().filter(|order| seen.insert(order.id));
                rows.extend(fresh.map(|order| NewOrder { key: &row.key, order, expires_ms }));
            }
        }
        rows
    }
}

struct NewOrder<'a> {
    key: &'a SegmentKey,
    order: &'a TakenOrder,
    expires_ms: i64,
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

    /// Moves every row whose checkpoint and version are still those of `before`. Returns the places in `moves` of those that moved.
    async fn compare_and_set(&mut self, moves: &[Move]) -> Result<Vec<usize>, LedgerError>;

    async fn commit(self) -> Result<(), LedgerError>;

    async fn roll_back(self);
}

/// Records the replays in the transaction.
pub(crate) async fn record(mut transaction: impl Statements, replays: Vec<SegmentReplay>) -> Result<Vec<Recorded>, LedgerError> {
    match apply(&mut transaction, replays).await {
        Ok(recorded) => {
            transaction.commit().await?;
            Ok(recorded)
        }
        Err(error) => {
            // Dropping it would do as well, but later: so the rows are free again when the caller hears of the error.
            transaction.roll_back().await;
            Err(error)
        }
    }
}

async fn apply(transaction: &mut impl Statements, replays: Vec<SegmentReplay>) -> Result<Vec<Recorded>, LedgerError> {
    let orders = NewOrders::of(&replays);
    let known = if orders.ids.is_empty() { HashSet::new() } else { transaction.insert(&orders).await? };
    let (moves, recorded) = replay_all(replays, known)?;
    let rejected: Vec<OrderId> = recorded.iter().flat_map(|recorded| recorded.rejected.iter().copied()).collect();
    if !rejected.is_empty() {
        transaction.reject(&rejected).await?;
    }
    let moved = transaction.compare_and_set(&moves).await?;
    match (0..moves.len()).find(|place| !moved.contains(place)) {
        Some(superseded) => Err(LedgerError::Superseded(moves[superseded].before.key.clone())),
        None => Ok(recorded),
    }
}

/// What the ledger had is seen from the start; what comes again in this batch is seen by then.
fn replay_all(replays: Vec<SegmentReplay>, mut seen: HashSet<OrderId>) -> Result<(Vec<Move>, Vec<Recorded>), LedgerError> {
    let (mut moves, mut recorded) = (Vec::with_capacity(replays.len()), Vec::with_capacity(replays.len()));
    for SegmentReplay { row, entries } in replays {
        let replayed = replay(&row, &entries, |id| seen.insert(id))?;
        recorded.push(Recorded {
            key: row.key.clone(),
            after: row.checkpoint,
            checkpoint: replayed.row.checkpoint.ok_or_else(|| LedgerError::Diverged(row.key.clone()))?,
            held: replayed.held,
            rejected: replayed.rejected,
            repeated: replayed.repeated,
        });
        moves.push(Move { before: row, after: replayed.row });
    }
    Ok((moves, recorded))
}
