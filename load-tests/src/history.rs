//! The history of all requests: what the service promised to which buyer.

mod carts;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    time::Duration,
};

use ::judge::limit::above_limit;
use anyhow::Result;
use client::{NewOrder, OrderState};
use hdrhistogram::Histogram;
use serde::Serialize;
use uuid::Uuid;

pub use self::carts::AcknowledgedCart;
use crate::{action::Action, cart::CartStep, claims::Claims, outcome::Outcome};

/// Longer latencies are recorded as this one.
const LATENCY_MAX: Duration = Duration::from_secs(120);

/// An order that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcknowledgedOrder {
    /// The number of the buyer.
    pub buyer: usize,
    /// The number of the item.
    pub item: usize,
    /// Number of units.
    pub quantity: u32,
    /// The last reported state.
    pub state: OrderState,
}

/// A settled request.
#[derive(Debug)]
pub struct Observation<'a> {
    /// The number of the buyer.
    pub buyer: usize,
    /// The number of the item.
    pub item: usize,
    /// What was requested.
    pub action: &'a Action,
    /// The outcome of the last attempt.
    pub outcome: &'a Outcome,
    /// How the outcome, or an attempt before it, violates the promises of the service.
    pub violation: Option<&'a str>,
    /// Time of the first attempt, since the start of the sale.
    pub begun: Duration,
    /// Whether an attempt before it had no outcome.
    pub unknown_first: bool,
    /// Time from the first attempt to the outcome.
    pub took: Duration,
    /// Time of the outcome, since the start of the sale.
    pub at: Duration,
}

#[cfg(test)]
impl<'a> Observation<'a> {
    /// A request of buyer 1 for item 0 that took a millisecond, the first of the sale.
    pub fn of(action: &'a Action, outcome: &'a Outcome) -> Self {
        Self {
            buyer: 1,
            item: 0,
            action,
            outcome,
            violation: None,
            begun: Duration::ZERO,
            unknown_first: false,
            took: Duration::from_millis(1),
            at: Duration::from_millis(1),
        }
    }
}

/// Counts of requests, of the history and of its verdict. Each request is in exactly one of held,
/// sold out, limited, carts, carts refused, extended, replayed, reads, payments, ends, declined and
/// given up, or is an error.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Counts {
    /// Settled requests, and those that were given up.
    pub requested: u64,
    /// Orders that were placed.
    pub held: u64,
    /// Orders that were refused as sold out.
    pub sold_out: u64,
    /// Orders that were refused because of the buyer's limit.
    pub limited: u64,
    /// Carts that were placed.
    pub carts: u64,
    /// Carts that were refused.
    pub carts_refused: u64,
    /// Carts whose holds were extended.
    pub carts_extended: u64,
    /// Repeats of placed orders and carts with the same outcome.
    pub replayed: u64,
    /// Items and orders that were shown, or correctly not shown.
    pub reads: u64,
    /// Accepted payments, repeats included.
    pub payments: u64,
    /// Accepted cancellations and refunds, repeats included.
    pub ends: u64,
    /// Payments, cancellations and refunds that were correctly refused.
    pub declined: u64,
    /// Requests whose response the client did not wait for.
    pub given_up: u64,
    /// Requests whose outcome was unknown at first.
    pub unknown_first: u64,
    /// Units of orders that were cancelled, refunded or expired.
    pub units_returned: u64,
}

/// All requests, and the orders that they placed.
pub struct History {
    /// How many requests had which outcome.
    pub counts: Counts,
    /// Units of the orders with an unknown outcome at first that were refused in the end.
    pub refused_units: u64,
    /// Carts with an unknown outcome at first that were refused in the end.
    pub carts_refused_after_unknown: u64,
    /// Number of errors of each kind.
    pub errors: BTreeMap<String, u64>,
    /// Every acknowledged order, even if the response violated another promise.
    pub orders: HashMap<Uuid, AcknowledgedOrder>,
    /// Every acknowledged cart. Its lines are among the orders.
    pub carts: HashMap<Uuid, AcknowledgedCart>,
    /// By item: when orders may have had units, and when others were refused.
    claims: HashMap<usize, Claims>,
    /// Items that were reported as sold out to a buyer of one unit.
    pub reported_sold_out: BTreeSet<usize>,
    /// Time at which the last order was placed.
    pub last_held: Duration,
    /// Time of the last outcome.
    pub last: Duration,
    /// Latencies of placed orders, in microseconds.
    pub held_latency: Histogram<u64>,
    /// Latencies of all outcomes, in microseconds.
    pub latency: Histogram<u64>,
}

impl History {
    /// An empty history.
    pub fn new() -> Result<Self> {
        let histogram = || Histogram::new_with_bounds(1, micros(LATENCY_MAX), 3);
        Ok(Self {
            counts: Counts::default(),
            refused_units: 0,
            carts_refused_after_unknown: 0,
            errors: BTreeMap::new(),
            orders: HashMap::new(),
            carts: HashMap::new(),
            claims: HashMap::new(),
            reported_sold_out: BTreeSet::new(),
            last_held: Duration::ZERO,
            last: Duration::ZERO,
            held_latency: histogram()?,
            latency: histogram()?,
        })
    }

    /// Records a request. Returns whether it placed an order that was not known.
    pub fn record(&mut self, observation: &Observation<'_>) -> bool {
        self.counts.requested += 1;
        self.last = self.last.max(observation.at);
        if *observation.outcome != Outcome::GivenUp {
            self.latency.saturating_record(micros(observation.took));
        }
        let is_new = self.record_order(observation);
        self.record_claim(observation);
        self.record_unknown(observation);
        self.count(observation, is_new);
        is_new
    }

    /// Judges no `sold_out` of this run.
    pub fn forget_claims(&mut self) {
        self.claims.clear();
    }

    fn record_unknown(&mut self, observation: &Observation<'_>) {
        if !observation.unknown_first {
            return;
        }
        self.counts.unknown_first += 1;
        if let (Action::Order(order), Outcome::SoldOut | Outcome::Limited) =
            (observation.action, observation.outcome)
        {
            self.refused_units += u64::from(order.quantity());
        }
        if let Outcome::CartRefused(_) = observation.outcome {
            self.carts_refused_after_unknown += 1;
        }
    }

    fn count(&mut self, observation: &Observation<'_>, is_new: bool) {
        if let Some(error) = observation.violation.or(observation.outcome.error()) {
            *self.errors.entry(error.to_owned()).or_default() += 1;
            return;
        }
        match observation.outcome {
            Outcome::Held { .. } if is_new => self.count_placed(observation),
            Outcome::Held { .. } | Outcome::MovedOn { .. } => self.counts.replayed += 1,
            Outcome::Limited => self.counts.limited += 1,
            Outcome::SoldOut => {
                self.counts.sold_out += 1;
                if matches!(observation.action, Action::Order(order) if order.quantity() == 1) {
                    self.reported_sold_out.insert(observation.item);
                }
            }
            Outcome::GivenUp => self.counts.given_up += 1,
            Outcome::Item => self.counts.reads += 1,
            Outcome::CartHeld { .. } if is_new => self.counts.carts += 1,
            Outcome::CartHeld { .. } | Outcome::CartMovedOn { .. } => self.counts.replayed += 1,
            Outcome::CartRefused(_) => self.counts.carts_refused += 1,
            Outcome::InState(_) | Outcome::CartInState { .. } | Outcome::Refused(_)
                if is_read(observation.action) =>
            {
                self.counts.reads += 1
            }
            Outcome::CartInState { .. } => self.count_step(observation.action),
            Outcome::Refused(_) => self.counts.declined += 1,
            Outcome::InState(_) if matches!(observation.action, Action::Pay { .. }) => {
                self.counts.payments += 1
            }
            Outcome::InState(_) => self.counts.ends += 1,
            Outcome::Unknown(_) | Outcome::Wrong(_) => {}
        }
    }

    fn count_placed(&mut self, observation: &Observation<'_>) {
        self.counts.held += 1;
        self.last_held = self.last_held.max(observation.at);
        self.held_latency
            .saturating_record(micros(observation.took));
    }

    /// Records the reported state of an order, even if the outcome violates another promise.
    /// Returns whether the order was not known.
    fn record_order(&mut self, observation: &Observation<'_>) -> bool {
        match (observation.action, observation.outcome) {
            (Action::Order(order), Outcome::Held { id, .. }) => {
                self.record_placed(*id, observation, order.quantity())
            }
            (_, Outcome::InState(state)) => {
                if let Some(order) = observation.action.order() {
                    self.set_state(order.id, *state);
                }
                false
            }
            (Action::Cart(_), Outcome::CartHeld { cart, .. }) => {
                self.record_cart(observation.buyer, cart)
            }
            (Action::Step(cart, _), Outcome::CartInState { state, .. }) => {
                self.set_cart_state(cart, *state);
                false
            }
            _ => false,
        }
    }

    /// Records when an order may have had units, or was refused.
    fn record_claim(&mut self, observation: &Observation<'_>) {
        let (begun, until) = (observation.begun, observation.begun + observation.took);
        if matches!(observation.action, Action::Cart(_) | Action::Step(..)) {
            return self.record_claims_of_cart(observation);
        }
        let claims = self.claims.entry(observation.item).or_default();
        let name = |order: &NewOrder| format!("{}:{}", observation.buyer, order.key());
        if let Action::Order(order) = observation.action {
            claims.requested(name(order), begun);
        }
        match (observation.action, observation.outcome) {
            (Action::Order(order), Outcome::Held { id, .. }) => {
                claims.took(*id, begun, order.quantity());
            }
            (Action::Order(order), Outcome::SoldOut) => {
                claims.refused(name(order), until, order.quantity());
            }
            (Action::Order(_), Outcome::Limited) => {}
            (Action::Order(order), _) => claims.may_have_taken(begun, order.quantity()),
            // Its units are back before it is acknowledged.
            (
                Action::Cancel(order) | Action::Refund(order),
                Outcome::InState(OrderState::Cancelled | OrderState::Refunded),
            ) => claims.came_back(order.id, until, order.quantity),
            _ => {}
        }
    }

    /// Orders for the item that were refused as sold out although as many units were free as they
    /// wanted, at each instant of their request.
    pub fn wrongly_sold_out(&self, item: usize, stock: u64) -> u64 {
        let claims = self.claims.get(&item);
        claims.map_or(0, |claims| claims.wrong_refusals(stock))
    }

    fn record_placed(&mut self, id: Uuid, observation: &Observation<'_>, quantity: u32) -> bool {
        match self.orders.entry(id) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(AcknowledgedOrder {
                    buyer: observation.buyer,
                    item: observation.item,
                    quantity,
                    state: OrderState::Held,
                });
                true
            }
        }
    }

    fn set_state(&mut self, id: Uuid, state: OrderState) {
        let Some(order) = self.orders.get_mut(&id) else {
            return;
        };
        if order.state.has_units() && !state.has_units() {
            self.counts.units_returned += u64::from(order.quantity);
        }
        order.state = state;
    }

    /// Marks all held orders of the item as expired.
    pub fn expire_holds(&mut self, item: usize) {
        let held = self
            .orders
            .iter()
            .filter(|(_, order)| order.item == item && order.state == OrderState::Held);
        let held: Vec<_> = held.map(|(id, _)| *id).collect();
        for id in held {
            self.set_state(id, OrderState::Expired);
        }
    }

    /// Units of the item that buyers have, according to the responses.
    pub fn units(&self, item: usize) -> u64 {
        self.sum(|order| order.item == item && order.state.has_units())
    }

    /// Units of the item that are paid, according to the responses.
    pub fn units_paid(&self, item: usize) -> u64 {
        self.sum(|order| order.item == item && order.state == OrderState::Confirmed)
    }

    /// Units of the item in all placed orders, including those that have returned.
    pub fn units_placed(&self, item: usize) -> u64 {
        self.sum(|order| order.item == item)
    }

    fn sum(&self, counts: impl Fn(&AcknowledgedOrder) -> bool) -> u64 {
        self.orders
            .values()
            .filter(|order| counts(order))
            .map(|order| u64::from(order.quantity))
            .sum()
    }

    /// Number of buyers who have more than `limit` units of an item.
    pub fn buyers_over(&self, limit: u32) -> u64 {
        let orders = self.orders.values().map(|order| {
            let units = u64::from(order.quantity);
            ((order.buyer, order.item), order.state, units)
        });
        above_limit(limit, orders).len() as u64
    }
}

fn is_read(action: &Action) -> bool {
    matches!(action, Action::Show(_) | Action::Step(_, CartStep::Show))
}

/// The duration in whole microseconds.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use client::{NewOrder, OrderState};
    use uuid::Uuid;

    use super::{History, Observation};
    use crate::{
        action::{Action, OrderRef},
        outcome::Outcome,
    };

    fn record(
        history: &mut History,
        buyer: usize,
        quantity: u32,
        outcome: &Outcome,
        violation: Option<&str>,
    ) {
        let action = Action::Order(NewOrder::new("vase", quantity));
        history.record(&Observation {
            buyer,
            violation,
            ..Observation::of(&action, outcome)
        });
    }

    fn record_step(
        history: &mut History,
        action: fn(OrderRef) -> Action,
        id: u128,
        outcome: &Outcome,
    ) {
        let action = action(OrderRef {
            id: Uuid::from_u128(id),
            quantity: 1,
        });
        history.record(&Observation::of(&action, outcome));
    }

    fn brings_to(
        history: &mut History,
        action: fn(OrderRef) -> Action,
        id: u128,
        state: OrderState,
    ) {
        record_step(history, action, id, &Outcome::InState(state));
    }

    fn held(id: u128, replayed: bool) -> Outcome {
        Outcome::Held {
            id: Uuid::from_u128(id),
            replayed,
        }
    }

    #[test]
    fn each_request_and_each_order_is_counted_once() {
        let mut history = History::new().unwrap();
        record(&mut history, 1, 2, &held(1, false), None);
        record(&mut history, 1, 2, &held(1, true), None);
        record(&mut history, 2, 1, &held(2, true), None);
        record(
            &mut history,
            2,
            1,
            &held(3, true),
            Some("a repeat returned another order"),
        );
        record(&mut history, 3, 1, &Outcome::SoldOut, None);
        record(&mut history, 1, 1, &Outcome::Limited, None);
        record(&mut history, 1, 1, &Outcome::GivenUp, None);
        record(
            &mut history,
            1,
            1,
            &Outcome::Wrong("404 item_not_found".into()),
            None,
        );
        assert_eq!(
            (
                history.counts.held,
                history.counts.replayed,
                history.counts.sold_out,
                history.counts.limited,
                history.counts.given_up
            ),
            (2, 1, 1, 1, 1)
        );
        assert_eq!(history.errors.values().sum::<u64>(), 2);
        assert_eq!(history.counts.requested, 8);
        assert_eq!(
            history.units(0),
            4,
            "an acknowledged order counts even if it violates another promise"
        );
        assert!(history.reported_sold_out.contains(&0));
    }

    #[test]
    fn steps_of_an_order_are_not_counted_as_orders() {
        let mut history = History::new().unwrap();
        for id in 1..=3 {
            record(&mut history, 1, 1, &held(id, false), None);
        }
        let pay = |order| Action::Pay {
            order,
            payment: "pay_1".into(),
        };
        brings_to(&mut history, pay, 1, OrderState::Confirmed);
        brings_to(&mut history, pay, 1, OrderState::Confirmed);
        record_step(
            &mut history,
            Action::Cancel,
            1,
            &Outcome::Refused("order_not_cancellable"),
        );
        brings_to(&mut history, Action::Cancel, 2, OrderState::Cancelled);
        brings_to(&mut history, Action::Show, 2, OrderState::Cancelled);
        assert_eq!(
            (
                history.counts.held,
                history.counts.payments,
                history.counts.declined,
                history.counts.ends,
                history.counts.reads
            ),
            (3, 2, 1, 1, 1)
        );
        assert_eq!(
            (
                history.units(0),
                history.units_paid(0),
                history.units_placed(0),
                history.counts.units_returned
            ),
            (2, 1, 3, 1)
        );
        history.expire_holds(0);
        assert_eq!(
            (history.units(0), history.counts.units_returned),
            (1, 2),
            "the third has expired, and the first is paid"
        );
        brings_to(&mut history, Action::Refund, 1, OrderState::Refunded);
        assert_eq!((history.units(0), history.counts.units_returned), (0, 3));
    }

    #[test]
    fn a_repeat_does_not_revive_a_cancelled_order() {
        let mut history = History::new().unwrap();
        record(&mut history, 1, 1, &held(1, false), None);
        brings_to(&mut history, Action::Cancel, 1, OrderState::Cancelled);
        record(&mut history, 1, 1, &held(1, true), None);
        assert_eq!((history.counts.held, history.units(0)), (1, 0));
    }

    #[test]
    fn a_buyer_over_the_limit_is_found_even_if_each_outcome_was_allowed() {
        let mut history = History::new().unwrap();
        for id in 0..3 {
            record(&mut history, 1, 1, &held(id, false), None);
        }
        record(&mut history, 2, 2, &held(9, false), None);
        assert_eq!((history.buyers_over(2), history.buyers_over(3)), (1, 0));
        brings_to(&mut history, Action::Cancel, 0, OrderState::Cancelled);
        assert_eq!(history.buyers_over(2), 0, "returned units do not count");
    }

    #[test]
    fn a_refusal_of_two_units_does_not_imply_that_one_is_sold_out() {
        let mut history = History::new().unwrap();
        record(&mut history, 1, 2, &Outcome::SoldOut, None);
        assert!(history.reported_sold_out.is_empty());
    }
}
