//! Recording, for every database: read the rows that the entries touch, replay, write, move the
//! checkpoints, commit.

use std::collections::{BTreeMap, BTreeSet};

use domain::{Change, Entry, Item, ItemId, OrderId, SegmentKey, TransferId};
use jiff::Timestamp;

use crate::{
    LedgerError, Recorded, SegmentReplay, SegmentRow,
    convert::signed,
    events::{EventKind, NewEvent, OrderEvents},
    limits::{self, Taker, Watch},
    replay::{ReplayMode, Replayed, replay},
    statements::{Expected, Move, NewOrder, NewOrders, Shape, Shapes, Statements},
    touched::{Changes, Touched},
    transaction::end,
};

/// Records the replays in the transaction.
pub(crate) async fn record(
    mut transaction: impl Statements,
    replays: &[SegmentReplay],
    shapes: &Shapes,
    expected: Expected,
) -> Result<Vec<Recorded>, LedgerError> {
    let recorded = apply(&mut transaction, replays, shapes, expected).await;
    end(transaction, recorded).await
}

/// Records the entries in the transaction, and rolls it back.
pub(crate) async fn rehearse(
    mut transaction: impl Statements,
    item: &Item,
    row: Option<SegmentRow>,
    entries: Vec<Entry>,
) -> Result<Recorded, LedgerError> {
    let key = SegmentKey {
        item: item.id.clone(),
        segment: 0,
    };
    let Some(row) = row else {
        transaction.roll_back().await;
        return Err(LedgerError::Superseded(key));
    };
    let shape = Shape {
        segments: item.segments,
        hold_ms: i64::from(item.hold_seconds) * 1000,
    };
    let (replays, shapes) = (
        [SegmentReplay { row, entries }],
        Shapes::from([(item.id.clone(), shape)]),
    );
    let recorded = apply(&mut transaction, &replays, &shapes, Expected::New).await;
    transaction.roll_back().await;
    recorded?.pop().ok_or(LedgerError::Superseded(key))
}

async fn apply(
    transaction: &mut impl Statements,
    replays: &[SegmentReplay],
    shapes: &Shapes,
    expected: Expected,
) -> Result<Vec<Recorded>, LedgerError> {
    let entries = replays
        .iter()
        .map(|replay| (&replay.row.key, &*replay.entries));
    let mut touched = load_touched(transaction, entries, shapes, Watch::OffHome, expected).await?;
    let Replays {
        moves,
        recorded,
        events,
    } = replay_all(replays, &mut touched)?;
    write(transaction, &recorded, touched.changes).await?;
    move_all(transaction, &moves, &events).await?;
    Ok(recorded)
}

/// Updates all rows and adds the events, or fails.
pub(crate) async fn move_all(
    transaction: &mut impl Statements,
    moves: &[Move],
    events: &[NewEvent],
) -> Result<(), LedgerError> {
    let moved = transaction.compare_and_set(moves, events).await?;
    match (0..moves.len()).find(|place| !moved.contains(place)) {
        Some(superseded) => Err(LedgerError::Superseded(
            moves[superseded].before.key.clone(),
        )),
        None => Ok(()),
    }
}

/// The orders, returns and transfers that entries mention.
#[derive(Default)]
struct Mentioned<'a> {
    taken: Vec<NewOrder<'a>>,
    takers: BTreeMap<&'a ItemId, Vec<Taker<'a>>>,
    reacquired: BTreeSet<OrderId>,
    released: BTreeMap<OrderId, &'a SegmentKey>,
    transferred: BTreeSet<TransferId>,
}

impl<'a> Mentioned<'a> {
    fn add(&mut self, shapes: &Shapes, key: &'a SegmentKey, change: &'a Change) {
        match change {
            Change::Taken {
                expires_at,
                price,
                orders,
            } => {
                let expires_ms = expires_at.as_millisecond();
                let hold_ms = shapes.get(&key.item).map_or(0, |shape| shape.hold_ms);
                let takers = orders.iter().map(|order| Taker {
                    segment: key.segment,
                    buyer: &order.buyer,
                });
                self.takers.entry(&key.item).or_default().extend(takers);
                self.taken.reserve(orders.len());
                for order in orders {
                    if order.id.attempt() > 0 {
                        self.reacquired.insert(order.id.first());
                    } else {
                        self.taken.push(NewOrder {
                            key,
                            order,
                            created_ms: expires_ms - hold_ms,
                            expires_ms,
                            price: price.map(signed),
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

/// Inserts the new orders, and reads and locks the other rows that the entries touch.
///
/// Lock order, in every transaction: the segments' rows (already locked here), limits, orders,
/// returns, transfers.
pub(crate) async fn load_touched<'a>(
    transaction: &mut impl Statements,
    entries: impl Iterator<Item = (&'a SegmentKey, &'a [Entry])>,
    shapes: &Shapes,
    watch: Watch,
    expected: Expected,
) -> Result<Touched, LedgerError> {
    let mut mentioned = Mentioned::default();
    for (key, entries) in entries {
        entries
            .iter()
            .for_each(|entry| mentioned.add(shapes, key, &entry.change));
    }
    let mut touched = Touched {
        watched: limits::check_limits(transaction, &mentioned.takers, shapes, watch).await?,
        ..Touched::default()
    };
    if !mentioned.taken.is_empty() {
        touched.orders = transaction
            .insert(&NewOrders::sorted(mentioned.taken), expected)
            .await?;
    }
    if !mentioned.reacquired.is_empty() {
        let orders = transaction.lock_orders(&mentioned.reacquired).await?;
        touched.reacquired = orders.into_iter().map(|order| (order.id, order)).collect();
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

/// What follows from the replays of a transaction.
struct Replays {
    moves: Vec<Move>,
    recorded: Vec<Recorded>,
    events: Vec<NewEvent>,
}

/// Replays every segment. `touched` starts with the rows of the ledger, and each replay adds to it,
/// so that repeats within the batch are recognised as well.
fn replay_all(replays: &[SegmentReplay], touched: &mut Touched) -> Result<Replays, LedgerError> {
    let mut events = OrderEvents::default();
    let (mut moves, mut recorded) = (
        Vec::with_capacity(replays.len()),
        Vec::with_capacity(replays.len()),
    );
    for SegmentReplay { row, entries } in replays {
        let mut replayed = replay(row, entries, touched, ReplayMode::Strict)?;
        if replayed.row.checkpoint.is_none() {
            return Err(LedgerError::Diverged(row.key.clone()));
        }
        add_events(&mut events, &mut replayed);
        let after = replayed.row.clone();
        recorded.push(recorded_of(row, replayed));
        moves.push(Move {
            before: row.clone(),
            after,
        });
    }
    Ok(Replays {
        moves,
        recorded,
        events: events.into_events(),
    })
}

/// Adds the orders that the replay held and rejected.
pub(crate) fn add_events(events: &mut OrderEvents, replayed: &mut Replayed) {
    let held = std::mem::take(&mut replayed.held_orders);
    // A reacquisition that was not covered leaves its order unchanged.
    let rejected = replayed.rejected.iter().filter(|id| id.attempt() == 0);
    let rejected = rejected.copied().collect();
    let item = &replayed.row.key.item;
    events.extend(item, EventKind::OrderHeld, held);
    events.extend(item, EventKind::OrderRejected, rejected);
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

/// Writes the changes of the replays, except the segments' rows.
pub(crate) async fn write(
    transaction: &mut impl Statements,
    recorded: &[Recorded],
    changes: Changes,
) -> Result<(), LedgerError> {
    let rejected = recorded
        .iter()
        .flat_map(|recorded| recorded.rejected.iter().copied());
    // A reacquisition that was not covered leaves its order unchanged.
    let rejected: Vec<OrderId> = rejected.filter(|id| id.attempt() == 0).collect();
    if !rejected.is_empty() {
        transaction.reject(&rejected).await?;
    }
    if !changes.reacquired.is_empty() {
        transaction.reacquire(&changes.reacquired).await?;
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
