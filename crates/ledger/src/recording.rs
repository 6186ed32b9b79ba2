//! Recording, the same for every database: look at what the entries touch, decide, write, move the checkpoints, commit.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use async_trait::async_trait;
use domain::{Change, Entry, ItemId, OrderId, SegmentKey, TakenOrder, TransferId};
use jiff::Timestamp;

use crate::{
    LedgerError, PendingReturn, Recorded, SegmentReplay, SegmentRow, Transfer,
    limits::{self, Asked, Taker, Terms, Watch},
    replay::{Reading, Replayed, replay},
    touched::{Changes, RetakenOrder, Touched},
    transaction::{Transact, end},
};

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
    fn sorted(mut rows: Vec<NewOrder<'_>>) -> Self {
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
}

struct NewOrder<'a> {
    key: &'a SegmentKey,
    order: &'a TakenOrder,
    expires_ms: i64,
}

/// What is expected of orders that are to be inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// That none of them is there.
    New,
    /// Nothing.
    Any,
}

/// How many segments each item has.
pub(crate) type Widths = HashMap<ItemId, u16>;

/// A row before and after.
pub(crate) struct Move {
    pub before: SegmentRow,
    pub after: SegmentRow,
}

/// The statements of a recording transaction. None is called for nothing.
#[async_trait]
pub(crate) trait Statements: Transact {
    /// Inserts the orders as `held`, but for those that are there already. Returns these. If all are said to be new, it may instead fail with
    /// [`LedgerError::Known`] where one is not, and the transaction with it.
    async fn insert(
        &mut self,
        orders: &NewOrders,
        expected: Expected,
    ) -> Result<HashSet<OrderId>, LedgerError>;

    /// Makes orders that were just inserted `rejected`.
    async fn reject(&mut self, orders: &[OrderId]) -> Result<(), LedgerError>;

    /// Keeps whoever else records orders of those of these items that have a limit waiting until we have committed: for `true` all of them, for `false`
    /// those who ask for `true`. Returns their terms, as they are from then on.
    async fn limits_of(
        &mut self,
        items: &BTreeMap<&ItemId, bool>,
    ) -> Result<Vec<Terms>, LedgerError>;

    /// From now on it is not certain any more that every order of these items stands at its buyer's home.
    async fn not_all_at_home(&mut self, items: &[&ItemId]) -> Result<(), LedgerError>;

    /// Units that these buyers hold or have paid for, by their place in `asked`. Who has none may be left out.
    async fn held_by(&mut self, asked: &[Asked<'_>]) -> Result<Vec<(usize, u64)>, LedgerError>;

    /// Locks the orders, in their order.
    async fn lock_orders(
        &mut self,
        ids: &BTreeSet<OrderId>,
    ) -> Result<Vec<RetakenOrder>, LedgerError>;

    /// Writes state, attempt, segment and the end of the hold.
    async fn retake(&mut self, orders: &BTreeMap<OrderId, RetakenOrder>)
    -> Result<(), LedgerError>;

    /// Deletes returns that are pending at these segments, and returns them.
    async fn take_returns(
        &mut self,
        returned: &BTreeMap<OrderId, &SegmentKey>,
    ) -> Result<Vec<PendingReturn>, LedgerError>;

    /// Inserts returns.
    async fn add_returns(
        &mut self,
        returns: &[PendingReturn],
        since: Timestamp,
    ) -> Result<(), LedgerError>;

    /// Locks the transfers, in their order.
    async fn lock_transfers(
        &mut self,
        ids: &BTreeSet<TransferId>,
    ) -> Result<Vec<Transfer>, LedgerError>;

    /// Writes state and moved.
    async fn move_transfers(
        &mut self,
        transfers: &BTreeMap<TransferId, Transfer>,
    ) -> Result<(), LedgerError>;

    /// Moves every row whose checkpoint and version are still those of `before`. Returns the places in `moves` of those that moved.
    async fn compare_and_set(&mut self, moves: &[Move]) -> Result<Vec<usize>, LedgerError>;
}

/// Records the replays in the transaction.
pub(crate) async fn record(
    mut transaction: impl Statements,
    replays: &[SegmentReplay],
    widths: &Widths,
    expected: Expected,
) -> Result<Vec<Recorded>, LedgerError> {
    let recorded = apply(&mut transaction, replays, widths, expected).await;
    end(transaction, recorded).await
}

async fn apply(
    transaction: &mut impl Statements,
    replays: &[SegmentReplay],
    widths: &Widths,
    expected: Expected,
) -> Result<Vec<Recorded>, LedgerError> {
    let entries = replays
        .iter()
        .map(|replay| (&replay.row.key, &*replay.entries));
    let mut touched = look(transaction, entries, widths, Watch::Strays, expected).await?;
    let (moves, recorded) = replay_all(replays, &mut touched)?;
    write(transaction, &recorded, touched.changes).await?;
    move_all(transaction, &moves).await?;
    Ok(recorded)
}

/// Moves the rows, all or none.
pub(crate) async fn move_all(
    transaction: &mut impl Statements,
    moves: &[Move],
) -> Result<(), LedgerError> {
    let moved = transaction.compare_and_set(moves).await?;
    match (0..moves.len()).find(|place| !moved.contains(place)) {
        Some(superseded) => Err(LedgerError::Superseded(
            moves[superseded].before.key.clone(),
        )),
        None => Ok(()),
    }
}

/// What entries speak of.
#[derive(Default)]
struct Mentioned<'a> {
    taken: Vec<NewOrder<'a>>,
    takers: BTreeMap<&'a ItemId, Vec<Taker<'a>>>,
    retaken: BTreeSet<OrderId>,
    released: BTreeMap<OrderId, &'a SegmentKey>,
    transferred: BTreeSet<TransferId>,
}

impl<'a> Mentioned<'a> {
    /// An order that stands twice counts where it stands first, as in the replay.
    fn add(&mut self, seen: &mut HashSet<OrderId>, key: &'a SegmentKey, change: &'a Change) {
        match change {
            Change::Taken { expires_at, orders } => {
                let expires_ms = expires_at.as_millisecond();
                let takers = orders.iter().map(|order| Taker {
                    segment: key.segment,
                    buyer: &order.buyer,
                });
                self.takers.entry(&key.item).or_default().extend(takers);
                for order in orders {
                    if order.id.attempt() > 0 {
                        self.retaken.insert(order.id.first());
                    } else if seen.insert(order.id) {
                        self.taken.push(NewOrder {
                            key,
                            order,
                            expires_ms,
                        });
                    }
                }
            }
            Change::Released { orders } => self
                .released
                .extend(orders.iter().map(|order| (order.id, key))),
            Change::TransferredOut(transferred) | Change::TransferredIn(transferred) => {
                self.transferred.insert(transferred.id);
            }
            Change::Opened { .. }
            | Change::StateSet { .. }
            | Change::Halted { .. }
            | Change::Adjusted { .. } => {}
        }
    }
}

/// Inserts the new orders, and reads and locks what else the entries touch. The segments' rows are locked by now; the limits come before the orders, these
/// before the returns and these before the transfers, everywhere.
pub(crate) async fn look<'a>(
    transaction: &mut impl Statements,
    entries: impl Iterator<Item = (&'a SegmentKey, &'a [Entry])>,
    widths: &Widths,
    watch: Watch,
    expected: Expected,
) -> Result<Touched, LedgerError> {
    let (mut mentioned, mut seen) = (Mentioned::default(), HashSet::new());
    for (key, entries) in entries {
        entries
            .iter()
            .for_each(|entry| mentioned.add(&mut seen, key, &entry.change));
    }
    let mut touched = Touched {
        watched: limits::look(transaction, &mentioned.takers, widths, watch).await?,
        ..Touched::default()
    };
    if !mentioned.taken.is_empty() {
        touched.orders = transaction
            .insert(&NewOrders::sorted(mentioned.taken), expected)
            .await?;
    }
    if !mentioned.retaken.is_empty() {
        let orders = transaction.lock_orders(&mentioned.retaken).await?;
        touched.retaken = orders.into_iter().map(|order| (order.id, order)).collect();
    }
    if !mentioned.released.is_empty() {
        let returns = transaction.take_returns(&mentioned.released).await?;
        touched.returns = returns
            .into_iter()
            .map(|pending| (pending.id, pending))
            .collect();
    }
    if !mentioned.transferred.is_empty() {
        let transfers = transaction.lock_transfers(&mentioned.transferred).await?;
        touched.transfers = transfers
            .into_iter()
            .map(|transfer| (transfer.id, transfer))
            .collect();
    }
    Ok(touched)
}

/// What the ledger had is seen from the start; what comes again in this batch is seen by then.
fn replay_all(
    replays: &[SegmentReplay],
    touched: &mut Touched,
) -> Result<(Vec<Move>, Vec<Recorded>), LedgerError> {
    let (mut moves, mut recorded) = (
        Vec::with_capacity(replays.len()),
        Vec::with_capacity(replays.len()),
    );
    for SegmentReplay { row, entries } in replays {
        let replayed = replay(row, entries, touched, Reading::Strict)?;
        if replayed.row.checkpoint.is_none() {
            return Err(LedgerError::Diverged(row.key.clone()));
        }
        let after = replayed.row.clone();
        recorded.push(recorded_of(row, replayed));
        moves.push(Move {
            before: row.clone(),
            after,
        });
    }
    Ok((moves, recorded))
}

pub(crate) fn recorded_of(before: &SegmentRow, replayed: Replayed) -> Recorded {
    Recorded {
        key: before.key.clone(),
        after: before.checkpoint,
        checkpoint: replayed.row.checkpoint.unwrap_or_default(),
        held: replayed.held,
        rejected: replayed.rejected,
        repeated: replayed.repeated,
        returned: replayed.returned,
        transferred: replayed.transferred,
    }
}

/// Writes what the replays have changed besides the rows.
pub(crate) async fn write(
    transaction: &mut impl Statements,
    recorded: &[Recorded],
    changes: Changes,
) -> Result<(), LedgerError> {
    let rejected = recorded
        .iter()
        .flat_map(|recorded| recorded.rejected.iter().copied());
    // A retake that was not covered leaves its order what it was.
    let rejected: Vec<OrderId> = rejected.filter(|id| id.attempt() == 0).collect();
    if !rejected.is_empty() {
        transaction.reject(&rejected).await?;
    }
    if !changes.retaken.is_empty() {
        transaction.retake(&changes.retaken).await?;
    }
    if !changes.returns.is_empty() {
        let returns: Vec<_> = changes.returns.into_values().collect();
        transaction.add_returns(&returns, Timestamp::now()).await?;
    }
    if !changes.transfers.is_empty() {
        transaction.move_transfers(&changes.transfers).await?;
    }
    Ok(())
}
