//! Transitions of orders, for every database: lock the segments, update the orders that still have
//! the expected version, and adjust the counters by what moved.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use domain::{ItemId, Order, OrderId, OrderState, SafetyCheck, SegmentKey, SessionId, Units};
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use crate::{
    Actors, LedgerError, NewJournalEntry, PendingReturn, Transition,
    changes::item,
    columns::columns,
    events::{self, NewEvent},
    refunds::{Act, Money, Ruling},
    statements,
    transaction::end,
};

/// SQL statements of a transaction that makes transitions, besides those of recording and of the
/// journal. None is called with an empty list.
#[async_trait]
pub(crate) trait Statements: statements::Statements + item::Statements {
    /// Limits how long each later statement waits for a row that something else has locked.
    async fn wait_briefly(&mut self) -> Result<(), LedgerError>;

    /// Locks the rows in this order, waiting for transactions that have them. Returns those whose
    /// item is archived.
    async fn lock_segments(
        &mut self,
        keys: &BTreeSet<SegmentKey>,
    ) -> Result<HashSet<SegmentKey>, LedgerError>;

    /// Notes the order of each payment that has none, locks the rows of all of them, and returns
    /// these. A payment without a row is unbound, and gets one.
    async fn bind_payments(
        &mut self,
        payments: &BTreeMap<&str, OrderId>,
    ) -> Result<Vec<BoundPayment>, LedgerError>;

    /// Updates each order that still has the version of its step. Returns those that it updated.
    /// Steps name distinct orders and are sorted by id. Recording reacquisitions locks orders in
    /// the same sequence.
    async fn step(&mut self, steps: &[&Transition]) -> Result<HashSet<OrderId>, LedgerError>;

    /// Moves the deadline of each order that is held and still has this version. Returns how many
    /// were.
    async fn set_deadlines(
        &mut self,
        orders: &[&Order],
        expires_at: Timestamp,
    ) -> Result<usize, LedgerError>;

    /// Writes the checkout session of the order or cart with this id, in place of an earlier one.
    /// Its row is locked, and gets another version in the same transaction.
    async fn name_session(&mut self, target: Uuid, session: &SessionId) -> Result<(), LedgerError>;

    /// Adds the changes to the rows' counters, and inserts the events. One of the two lists may be
    /// empty.
    async fn count(
        &mut self,
        moved: &BTreeMap<SegmentKey, Moved>,
        events: &[NewEvent],
    ) -> Result<(), LedgerError>;
}

columns! {
    /// The row of a payment that a step wants to take.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct BoundPayment {
        pub id: String,
        pub order_id: Uuid,
        pub is_returned: bool,
    }
}

/// Binds each payment to its order by the one rule. Returns the orders that do not get their
/// payment: something else has it, or it was returned.
pub(crate) async fn bind(
    transaction: &mut impl Statements,
    payments: &BTreeMap<&str, OrderId>,
) -> Result<HashSet<OrderId>, LedgerError> {
    let rows = transaction.bind_payments(payments).await?;
    let refused = rows.iter().filter_map(|row| {
        let order = *payments.get(row.id.as_str())?;
        let is_spent = row.is_returned && SafetyCheck::PaymentSpent.is_enabled();
        let money = Money::of(Some(row.order_id), is_spent, false);
        (money.after(Act::Pay(order.as_uuid())) == Ruling::Refuse).then_some(order)
    });
    Ok(refused.collect())
}

/// Changes of a row's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub available: i64,
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

    /// `archived`: Redis does not have the segment any more, so the units return in the ledger
    /// alone.
    fn add(&mut self, step: &Transition, archived: bool) {
        let units = i64::from(step.order.quantity.get());
        let Some(from) = self.units(step.order.state.units()) else {
            return;
        };
        *from -= units;
        match self.units(step.to.units()) {
            Some(to) => *to += units,
            None if archived => self.available += units,
            None => self.returning += units,
        }
    }
}

/// Makes the transitions in the transaction.
pub(crate) async fn transition(
    mut transaction: impl Statements,
    steps: &[Transition],
    actors: &Actors,
) -> Result<Vec<Option<Order>>, LedgerError> {
    let made = apply(&mut transaction, steps, actors).await;
    end(transaction, made).await
}

/// Ends the holds in the transaction, and returns the orders that have ended.
pub(crate) async fn expire(
    mut transaction: impl Statements,
    orders: &[Order],
) -> Result<Vec<Order>, LedgerError> {
    let step = |order: &Order| Transition {
        order: order.clone(),
        to: OrderState::Expired,
        payment: None,
    };
    let steps: Vec<_> = orders.iter().map(step).collect();
    let ended = async {
        spare_other_sales(
            &mut transaction,
            orders.iter().map(|order| &order.item).collect(),
        )
        .await?;
        apply(&mut transaction, &steps, &Actors::default()).await
    };
    let ended = ended.await;
    let ended = end(transaction, ended).await?;
    Ok(ended.into_iter().flatten().collect())
}

/// A transaction that waits for the rows of one sale keeps those of others locked.
pub(crate) async fn spare_other_sales(
    transaction: &mut impl Statements,
    items: BTreeSet<&ItemId>,
) -> Result<(), LedgerError> {
    match items.len() {
        0 | 1 => Ok(()),
        _ => transaction.wait_briefly().await,
    }
}

async fn apply(
    transaction: &mut impl Statements,
    steps: &[Transition],
    actors: &Actors,
) -> Result<Vec<Option<Order>>, LedgerError> {
    let valid = with_own_payment(transaction, valid(steps)).await?;
    let mut orders = make(transaction, valid, actors, Vec::new()).await?;
    Ok(steps
        .iter()
        .map(|step| orders.remove(&step.order.id))
        .collect())
}

/// Makes the transitions, which name distinct orders, are sorted by them, and whose payments are
/// bound. Returns the orders that were moved, as they are afterwards. `actors`: the admins whom the
/// journal names. `more`: events that belong to these transitions, besides their own.
pub(crate) async fn make(
    transaction: &mut impl Statements,
    valid: Vec<&Transition>,
    actors: &Actors,
    more: Vec<NewEvent>,
) -> Result<BTreeMap<OrderId, Order>, LedgerError> {
    let segments: BTreeSet<_> = valid
        .iter()
        .filter(|step| moves_units(step))
        .map(|step| segment(&step.order))
        .collect();
    let archived = if segments.is_empty() {
        HashSet::new()
    } else {
        transaction.lock_segments(&segments).await?
    };
    let stepped = if valid.is_empty() {
        HashSet::new()
    } else {
        transaction.step(&valid).await?
    };
    let made: Vec<_> = valid
        .into_iter()
        .filter(|step| stepped.contains(&step.order.id))
        .collect();
    let orders: BTreeMap<_, _> = made
        .iter()
        .map(|step| (step.order.id, stepped_to(step)))
        .collect();
    let mut events = events::of_transitions(orders.values());
    events.extend(more);
    count(transaction, &made, &archived, &events).await?;
    for step in made.iter().filter(|step| step.to == OrderState::RefundDue) {
        transaction.note(&refund_due_entry(step)).await?;
    }
    let named = made.iter().filter_map(|step| act_entry(step, actors));
    let named: Vec<_> = named.collect();
    if !named.is_empty() {
        transaction.note_all(&named).await?;
    }
    Ok(orders)
}

/// At most one step for each order, and only transitions of the state machine: the counters'
/// arithmetic relies on both. Sorted by order id. A line of a cart moves with its cart alone; only
/// what is left of a cart that has failed may expire, and what an expired one has taken again for a
/// payment that never came to its end ([`OrderLife::due`](crate::OrderLife::due)).
fn valid(steps: &[Transition]) -> Vec<&Transition> {
    let mut seen = HashSet::new();
    let is_free = |step: &Transition| step.order.cart.is_none() || step.to == OrderState::Expired;
    let valid = steps.iter().filter(|step| {
        step.order.state.may_become(step.to) && is_free(step) && seen.insert(step.order.id)
    });
    let mut valid: Vec<_> = valid.collect();
    valid.sort_unstable_by_key(|step| step.order.id);
    valid
}

/// The transitions without a payment, and those whose payment belongs to no other order and was not
/// returned. First of all, so that every transaction locks payments before segments.
async fn with_own_payment<'a>(
    transaction: &mut impl Statements,
    mut steps: Vec<&'a Transition>,
) -> Result<Vec<&'a Transition>, LedgerError> {
    let mut payments = BTreeMap::new();
    steps.retain(|step| match &step.payment {
        Some(payment) => {
            *payments.entry(payment.as_str()).or_insert(step.order.id) == step.order.id
        }
        None => true,
    });
    if !payments.is_empty() && SafetyCheck::PaymentOnce.is_enabled() {
        let without = bind(transaction, &payments).await?;
        steps.retain(|step| !without.contains(&step.order.id));
    }
    Ok(steps)
}

fn moves_units(step: &Transition) -> bool {
    step.order.state.units() != step.to.units()
}

async fn count(
    transaction: &mut impl Statements,
    made: &[&Transition],
    archived: &HashSet<SegmentKey>,
    events: &[NewEvent],
) -> Result<(), LedgerError> {
    let mut moved: BTreeMap<SegmentKey, Moved> = BTreeMap::new();
    let mut returns = Vec::new();
    for step in made.iter().filter(|step| moves_units(step)) {
        let segment = segment(&step.order);
        let archived = archived.contains(&segment);
        moved.entry(segment).or_default().add(step, archived);
        if step.to.units() == Units::None && !archived {
            returns.push(pending(&step.order));
        }
    }
    if !returns.is_empty() {
        transaction.add_returns(&returns, Timestamp::now()).await?;
    }
    if !moved.is_empty() || !events.is_empty() {
        transaction.count(&moved, events).await?;
    }
    Ok(())
}

/// A journal entry for a refund: an operator finds it there and returns the money manually. Only a
/// late payment that found no units leads to it.
fn refund_due_entry(step: &Transition) -> NewJournalEntry {
    let order = stepped_to(step);
    NewJournalEntry {
        item: order.item,
        actor: "payment".into(),
        action: order.state.to_string(),
        token: None,
        before: json!({ "order": order.id, "state": step.order.state }),
        after: json!({ "state": order.state, "payment": order.payment }),
    }
}

/// A journal entry for what an admin has done to the order. `None`: no admin has.
pub(crate) fn act_entry(step: &Transition, actors: &Actors) -> Option<NewJournalEntry> {
    let actor = actors.get(&step.order.id)?;
    let order = stepped_to(step);
    let mut before = json!({ "order": order.id, "state": step.order.state });
    if let Some(cart) = order.cart {
        before["cart"] = json!(cart);
    }
    let mut after = json!({ "state": order.state });
    if let Some(payment) = &order.payment {
        after["payment"] = json!(payment);
    }
    Some(NewJournalEntry {
        item: order.item,
        actor: actor.as_ref().into(),
        action: match step.to {
            OrderState::Cancelled => "cancel",
            OrderState::Refunded => "refund",
            other => other.as_str(),
        }
        .into(),
        token: None,
        before,
        after,
    })
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
