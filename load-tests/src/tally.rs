//! Our own books: what was answered, and which units were promised to whom.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    time::Duration,
};

use anyhow::Result;
use hdrhistogram::Histogram;
use uuid::Uuid;

use crate::{
    answer::Answer,
    wish::{State, Wish},
};

/// The longest latency that is told from longer ones.
const LATENCY_MOST: Duration = Duration::from_secs(120);

/// An order that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// To whom.
    pub buyer: usize,
    /// Of which item.
    pub item: usize,
    /// Units.
    pub quantity: u32,
    /// Where it stood when it was last spoken of.
    pub state: State,
}

/// A request that was answered for good.
#[derive(Debug)]
pub struct Answered<'a> {
    /// Who asked.
    pub buyer: usize,
    /// About which item.
    pub item: usize,
    /// For what.
    pub wish: &'a Wish,
    /// The answer in the end.
    pub answer: &'a Answer,
    /// What is wrong with it, or with its way here.
    pub flaw: Option<&'a str>,
    /// From the request to the answer.
    pub took: Duration,
    /// When, since the sale began.
    pub at: Duration,
}

/// The books. Each request is in exactly one of held, sold out, limited, replayed, looks, payments, ends, declined, given up and errors.
pub struct Tally {
    /// Requests that were answered, or given up.
    pub requested: u64,
    /// Orders that were placed.
    pub held: u64,
    /// Refused: nothing is left.
    pub sold_out: u64,
    /// Refused: the buyer's limit.
    pub limited: u64,
    /// Repeats of placed orders that got the same answer.
    pub replayed: u64,
    /// Items and orders that were shown, or rightly not shown.
    pub looks: u64,
    /// Payments that were taken in, repeats included.
    pub payments: u64,
    /// Cancellations and refunds that were accepted, repeats included.
    pub ends: u64,
    /// Payments, cancellations and refunds that were rightly refused.
    pub declined: u64,
    /// The client did not wait for the answer.
    pub given_up: u64,
    /// What was wrong, and how often.
    pub errors: BTreeMap<String, u64>,
    /// Every order that was acknowledged, also in answers that were wrong in some other way.
    pub orders: HashMap<Uuid, Acknowledged>,
    /// Units that came back: of orders that were cancelled, refunded, or left until their hold was over.
    pub units_returned: u64,
    /// Items of which a buyer of one unit was told that none is left.
    pub told_sold_out: BTreeSet<usize>,
    /// When the last order was placed.
    pub last_held: Duration,
    /// When the last request was answered.
    pub last: Duration,
    /// Latencies of placed orders, in microseconds.
    pub held_latency: Histogram<u64>,
    /// Latencies of all answers, in microseconds.
    pub latency: Histogram<u64>,
}

impl Tally {
    /// Empty books.
    pub fn new() -> Result<Self> {
        let histogram = || Histogram::new_with_bounds(1, micros(LATENCY_MOST), 3);
        Ok(Self {
            requested: 0,
            held: 0,
            sold_out: 0,
            limited: 0,
            replayed: 0,
            looks: 0,
            payments: 0,
            ends: 0,
            declined: 0,
            given_up: 0,
            errors: BTreeMap::new(),
            orders: HashMap::new(),
            units_returned: 0,
            told_sold_out: BTreeSet::new(),
            last_held: Duration::ZERO,
            last: Duration::ZERO,
            held_latency: histogram()?,
            latency: histogram()?,
        })
    }

    /// Enters a request, and says whether it placed an order.
    pub fn enter(&mut self, answered: &Answered<'_>) -> bool {
        self.requested += 1;
        self.last = self.last.max(answered.at);
        if *answered.answer != Answer::GivenUp {
            self.latency.saturating_record(micros(answered.took));
        }
        let is_new = self.note(answered);
        self.count(answered, is_new);
        is_new
    }

    fn count(&mut self, answered: &Answered<'_>, is_new: bool) {
        if let Some(error) = answered.flaw.or(answered.answer.error()) {
            *self.errors.entry(error.to_owned()).or_default() += 1;
            return;
        }
        match answered.answer {
            Answer::Held { .. } if is_new => self.count_placed(answered),
            Answer::Held { .. } | Answer::MovedOn { .. } => self.replayed += 1,
            Answer::Limited => self.limited += 1,
            Answer::SoldOut => {
                self.sold_out += 1;
                if matches!(answered.wish, Wish::Order { quantity: 1, .. }) {
                    self.told_sold_out.insert(answered.item);
                }
            }
            Answer::GivenUp => self.given_up += 1,
            Answer::Item => self.looks += 1,
            Answer::Stands(_) | Answer::Refused(_) if matches!(answered.wish, Wish::Show(_)) => {
                self.looks += 1
            }
            Answer::Refused(_) => self.declined += 1,
            Answer::Stands(_) if matches!(answered.wish, Wish::Pay { .. }) => self.payments += 1,
            Answer::Stands(_) => self.ends += 1,
            Answer::Unknown(_) | Answer::Wrong(_) => {}
        }
    }

    fn count_placed(&mut self, answered: &Answered<'_>) {
        self.held += 1;
        self.last_held = self.last_held.max(answered.at);
        self.held_latency.saturating_record(micros(answered.took));
    }

    /// Notes what the answer says of an order, whatever is wrong with it otherwise, and says whether the order is new to us.
    fn note(&mut self, answered: &Answered<'_>) -> bool {
        match (answered.wish, answered.answer) {
            (Wish::Order { quantity, .. }, Answer::Held { id, .. }) => {
                self.note_placed(*id, answered, *quantity)
            }
            (_, Answer::Stands(state)) => {
                if let Some(order) = answered.wish.order() {
                    self.move_on(order.id, *state);
                }
                false
            }
            _ => false,
        }
    }

    fn note_placed(&mut self, id: Uuid, answered: &Answered<'_>, quantity: u32) -> bool {
        match self.orders.entry(id) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(Acknowledged {
                    buyer: answered.buyer,
                    item: answered.item,
                    quantity,
                    state: State::Held,
                });
                true
            }
        }
    }

    fn move_on(&mut self, id: Uuid, state: State) {
        let Some(order) = self.orders.get_mut(&id) else {
            return;
        };
        if order.state.has_units() && !state.has_units() {
            self.units_returned += u64::from(order.quantity);
        }
        order.state = state;
    }

    /// Notes that every hold on the item is over.
    pub fn end_holds(&mut self, item: usize) {
        let held = self
            .orders
            .iter()
            .filter(|(_, order)| order.item == item && order.state == State::Held);
        let held: Vec<_> = held.map(|(id, _)| *id).collect();
        for id in held {
            self.move_on(id, State::Expired);
        }
    }

    /// Units of the item that buyers have, as far as we were told.
    pub fn units(&self, item: usize) -> u64 {
        self.sum(|order| order.item == item && order.state.has_units())
    }

    /// Units of the item that buyers have paid for.
    pub fn units_paid(&self, item: usize) -> u64 {
        self.sum(|order| order.item == item && order.state == State::Confirmed)
    }

    /// Units of the item in all orders that were ever placed, those that came back included.
    pub fn units_placed(&self, item: usize) -> u64 {
        self.sum(|order| order.item == item)
    }

    fn sum(&self, counts: impl Fn(&Acknowledged) -> bool) -> u64 {
        self.orders
            .values()
            .filter(|order| counts(order))
            .map(|order| u64::from(order.quantity))
            .sum()
    }

    /// Buyers who have more than `limit` units of an item.
    pub fn buyers_beyond(&self, limit: u32) -> u64 {
        let mut units = HashMap::<(usize, usize), u64>::new();
        for order in self.orders.values().filter(|order| order.state.has_units()) {
            *units.entry((order.buyer, order.item)).or_default() += u64::from(order.quantity);
        }
        units
            .values()
            .filter(|units| **units > u64::from(limit))
            .count() as u64
    }
}

/// Whole microseconds.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reqwest::header::HeaderValue;
    use uuid::Uuid;

    use super::{Answered, Tally};
    use crate::{
        answer::Answer,
        wish::{Placed, State, Wish},
    };

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn enter(tally: &mut Tally, buyer: usize, quantity: u32, answer: &Answer, flaw: Option<&str>) {
        let wish = Wish::Order {
            key: HeaderValue::from_static("k"),
            quantity,
        };
        tally.enter(&Answered {
            buyer,
            item: 0,
            wish: &wish,
            answer,
            flaw,
            took: MILLISECOND,
            at: MILLISECOND,
        });
    }

    fn then(tally: &mut Tally, wish: fn(Placed) -> Wish, id: u128, answer: &Answer) {
        let wish = wish(Placed {
            id: Uuid::from_u128(id),
            quantity: 1,
        });
        tally.enter(&Answered {
            buyer: 1,
            item: 0,
            wish: &wish,
            answer,
            flaw: None,
            took: MILLISECOND,
            at: MILLISECOND,
        });
    }

    fn held(id: u128, replayed: bool) -> Answer {
        Answer::Held {
            id: Uuid::from_u128(id),
            replayed,
        }
    }

    #[test]
    fn every_request_is_counted_once_and_every_order_once() {
        let mut tally = Tally::new().unwrap();
        enter(&mut tally, 1, 2, &held(1, false), None);
        enter(&mut tally, 1, 2, &held(1, true), None);
        enter(&mut tally, 2, 1, &held(2, true), None);
        enter(
            &mut tally,
            2,
            1,
            &held(3, true),
            Some("a repeat was given another order"),
        );
        enter(&mut tally, 3, 1, &Answer::SoldOut, None);
        enter(&mut tally, 1, 1, &Answer::Limited, None);
        enter(&mut tally, 1, 1, &Answer::GivenUp, None);
        enter(
            &mut tally,
            1,
            1,
            &Answer::Wrong("404 item_not_found".into()),
            None,
        );
        assert_eq!(
            (
                tally.held,
                tally.replayed,
                tally.sold_out,
                tally.limited,
                tally.given_up
            ),
            (2, 1, 1, 1, 1)
        );
        assert_eq!(tally.errors.values().sum::<u64>(), 2);
        assert_eq!(tally.requested, 8);
        assert_eq!(
            tally.units(0),
            4,
            "an order that should not be is one that was promised"
        );
        assert!(tally.told_sold_out.contains(&0));
    }

    #[test]
    fn the_steps_of_a_life_are_counted_apart_from_orders() {
        let mut tally = Tally::new().unwrap();
        for id in 1..=3 {
            enter(&mut tally, 1, 1, &held(id, false), None);
        }
        let pay = |order| Wish::Pay {
            order,
            payment: "pay_1".into(),
        };
        then(&mut tally, pay, 1, &Answer::Stands(State::Confirmed));
        then(&mut tally, pay, 1, &Answer::Stands(State::Confirmed));
        then(
            &mut tally,
            Wish::Cancel,
            1,
            &Answer::Refused("order_not_cancellable"),
        );
        then(
            &mut tally,
            Wish::Cancel,
            2,
            &Answer::Stands(State::Cancelled),
        );
        then(&mut tally, Wish::Show, 2, &Answer::Stands(State::Cancelled));
        assert_eq!(
            (
                tally.held,
                tally.payments,
                tally.declined,
                tally.ends,
                tally.looks
            ),
            (3, 2, 1, 1, 1)
        );
        assert_eq!(
            (
                tally.units(0),
                tally.units_paid(0),
                tally.units_placed(0),
                tally.units_returned
            ),
            (2, 1, 3, 1)
        );
        tally.end_holds(0);
        assert_eq!(
            (tally.units(0), tally.units_returned),
            (1, 2),
            "the third is over, and the first is paid"
        );
        then(
            &mut tally,
            Wish::Refund,
            1,
            &Answer::Stands(State::Refunded),
        );
        assert_eq!((tally.units(0), tally.units_returned), (0, 3));
    }

    #[test]
    fn a_repeat_does_not_hold_anew_what_was_cancelled() {
        let mut tally = Tally::new().unwrap();
        enter(&mut tally, 1, 1, &held(1, false), None);
        then(
            &mut tally,
            Wish::Cancel,
            1,
            &Answer::Stands(State::Cancelled),
        );
        enter(&mut tally, 1, 1, &held(1, true), None);
        assert_eq!((tally.held, tally.units(0)), (1, 0));
    }

    #[test]
    fn a_buyer_beyond_the_limit_is_found_whatever_each_answer_looked_like() {
        let mut tally = Tally::new().unwrap();
        for id in 0..3 {
            enter(&mut tally, 1, 1, &held(id, false), None);
        }
        enter(&mut tally, 2, 2, &held(9, false), None);
        assert_eq!((tally.buyers_beyond(2), tally.buyers_beyond(3)), (1, 0));
        then(
            &mut tally,
            Wish::Cancel,
            0,
            &Answer::Stands(State::Cancelled),
        );
        assert_eq!(
            tally.buyers_beyond(2),
            0,
            "what was given back does not count"
        );
    }

    #[test]
    fn two_units_that_are_not_left_do_not_say_that_one_is_not() {
        let mut tally = Tally::new().unwrap();
        enter(&mut tally, 1, 2, &Answer::SoldOut, None);
        assert!(tally.told_sold_out.is_empty());
    }
}
