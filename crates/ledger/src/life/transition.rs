//! Making transitions, the same for every database: lock the segments, move the orders that are still as they were read, count what moved.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use domain::{Order, OrderId, OrderState, SegmentKey, Units};
use jiff::Timestamp;
use serde_json::json;

use crate::{
    LedgerError, NewJournalEntry, PendingReturn, Transition, changes::item, recording,
    transaction::end,
};

/// The statements of a transaction that makes transitions, besides those of recording and of the journal. None is called for nothing.
#[async_trait]
pub(crate) trait Statements: recording::Statements + item::Statements {
    /// Locks the rows, in their order, waiting for whoever has them.
    async fn lock_segments(&mut self, keys: &BTreeSet<SegmentKey>) -> Result<(), LedgerError>;

    /// Moves every order whose version is still that of the step. Returns those that moved. No order stands twice, and they are sorted: that is
    /// the order in which they are locked, as by whoever records retakes.
    async fn step(&mut self, steps: &[&Transition]) -> Result<HashSet<OrderId>, LedgerError>;

    /// Adds to the rows' counters.
    async fn count(&mut self, moved: &BTreeMap<SegmentKey, Moved>) -> Result<(), LedgerError>;
}

/// By how much a row's counters change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub held: i64,
    pub confirmed: i64,
    pub returning: i64,
}

impl Moved {
    fn units(&mut self, place: Units) -> Option<&mut i64> {
        match place {
            Units::Held => Some(&mut self.held),
            Units::Confirmed => Some(&mut self.confirmed),
            Units::None => None,
        }
    }

    fn add(&mut self, step: &Transition) {
        let units = i64::from(step.order.quantity.get());
        let Some(from) = self.units(step.order.state.units()) else {
            return;
        };
        *from -= units;
        match self.units(step.to.units()) {
            Some(to) => *to += units,
            None => self.returning += units,
        }
    }
}

/// Makes the transitions in the transaction.
pub(crate) async fn transition(
    mut transaction: impl Statements,
    steps: &[Transition],
) -> Result<Vec<Option<Order>>, LedgerError> {
    let made = apply(&mut transaction, steps).await;
    end(transaction, made).await
}

async fn apply(
    transaction: &mut impl Statements,
    steps: &[Transition],
) -> Result<Vec<Option<Order>>, LedgerError> {
    let sound = sound(steps);
    let segments: BTreeSet<_> = sound
        .iter()
        .filter(|step| moves_units(step))
        .map(|step| segment(&step.order))
        .collect();
    if !segments.is_empty() {
        transaction.lock_segments(&segments).await?;
    }
    let stepped = if sound.is_empty() {
        HashSet::new()
    } else {
        transaction.step(&sound).await?
    };
    let made: Vec<_> = sound
        .into_iter()
        .filter(|step| stepped.contains(&step.order.id))
        .collect();
    count(transaction, &made).await?;
    for step in made.iter().filter(|step| step.to == OrderState::RefundDue) {
        transaction.note(&owed(step)).await?;
    }
    let mut made: BTreeMap<_, _> = made
        .into_iter()
        .map(|step| (step.order.id, stepped_to(step)))
        .collect();
    Ok(steps
        .iter()
        .map(|step| made.remove(&step.order.id))
        .collect())
}

/// One step an order, and none that the picture does not have: its arithmetic would be wrong. Sorted.
fn sound(steps: &[Transition]) -> Vec<&Transition> {
    let mut seen = HashSet::new();
    let sound = steps
        .iter()
        .filter(|step| step.order.state.may_become(step.to) && seen.insert(step.order.id));
    let mut sound: Vec<_> = sound.collect();
    sound.sort_unstable_by_key(|step| step.order.id);
    sound
}

fn moves_units(step: &Transition) -> bool {
    step.order.state.units() != step.to.units()
}

async fn count(transaction: &mut impl Statements, made: &[&Transition]) -> Result<(), LedgerError> {
    let mut moved: BTreeMap<SegmentKey, Moved> = BTreeMap::new();
    let mut returns = Vec::new();
    for step in made.iter().filter(|step| moves_units(step)) {
        moved.entry(segment(&step.order)).or_default().add(step);
        if step.to.units() == Units::None {
            returns.push(pending(&step.order));
        }
    }
    if !returns.is_empty() {
        transaction.add_returns(&returns, Timestamp::now()).await?;
    }
    if !moved.is_empty() {
        transaction.count(&moved).await?;
    }
    Ok(())
}

/// Somebody has to give the money back by hand, and looks for it in the journal.
fn owed(step: &Transition) -> NewJournalEntry {
    let order = stepped_to(step);
    NewJournalEntry {
        item: order.item,
        // A payment that found no units; or nobody confirmed an order that was held anew for one, and its hold is over.
        actor: if step.payment.is_some() {
            "payment"
        } else {
            "reconciler"
        }
        .into(),
        action: order.state.to_string(),
        token: None,
        before: json!({ "order": order.id, "state": step.order.state }),
        after: json!({ "state": order.state, "payment": order.payment }),
    }
}

fn pending(order: &Order) -> PendingReturn {
    PendingReturn {
        id: order.take_id(),
        segment: segment(order),
        buyer: order.buyer.clone(),
        quantity: order.quantity,
    }
}

fn segment(order: &Order) -> SegmentKey {
    SegmentKey {
        item: order.item.clone(),
        segment: order.segment,
    }
}

fn stepped_to(step: &Transition) -> Order {
    let order = step.order.clone();
    Order {
        state: step.to,
        payment: step.payment.clone().or_else(|| order.payment.clone()),
        version: order.version + 1,
        ..order
    }
}
