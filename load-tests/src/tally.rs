//! Our own books: what was answered, and which units were promised to whom.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use anyhow::Result;
use hdrhistogram::Histogram;
use uuid::Uuid;

use crate::answer::Answer;

/// The longest latency that is told from longer ones.
const LATENCY_MOST: Duration = Duration::from_secs(120);

/// An order that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// To whom.
    pub buyer: usize,
    /// Units.
    pub quantity: u32,
}

/// A request that was answered for good.
#[derive(Debug)]
pub struct Answered<'a> {
    /// Who asked.
    pub buyer: usize,
    /// For how many units.
    pub quantity: u32,
    /// The answer in the end.
    pub answer: &'a Answer,
    /// What is wrong with it, or with its way here.
    pub flaw: Option<&'a str>,
    /// From the request to the answer.
    pub took: Duration,
    /// When, since the sale began.
    pub at: Duration,
}

/// The books. Each answered request is in exactly one of held, sold out, limited, replayed and errors.
pub struct Tally {
    /// Requests that were answered.
    pub requested: u64,
    /// Orders that were placed.
    pub held: u64,
    /// Refused: nothing is left.
    pub sold_out: u64,
    /// Refused: the buyer's limit.
    pub limited: u64,
    /// Repeats of placed orders that got the same answer.
    pub replayed: u64,
    /// What was wrong, and how often.
    pub errors: BTreeMap<String, u64>,
    /// Every order that was acknowledged, also in answers that were wrong in some other way.
    pub orders: HashMap<Uuid, Acknowledged>,
    /// A buyer of one unit was told that none is left, so none may be left.
    pub one_unit_sold_out: bool,
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
            errors: BTreeMap::new(),
            orders: HashMap::new(),
            one_unit_sold_out: false,
            last_held: Duration::ZERO,
            last: Duration::ZERO,
            held_latency: histogram()?,
            latency: histogram()?,
        })
    }

    /// Enters a request.
    pub fn enter(&mut self, answered: &Answered<'_>) {
        self.requested += 1;
        self.last = self.last.max(answered.at);
        self.latency.saturating_record(micros(answered.took));
        let is_new = self.note_order(answered);
        match answered {
            Answered { flaw: Some(flaw), .. } => *self.errors.entry((*flaw).to_owned()).or_default() += 1,
            Answered { answer: Answer::Held { .. }, .. } if is_new => self.enter_placed(answered),
            Answered { answer: Answer::Held { .. }, .. } => self.replayed += 1,
            Answered { answer: Answer::Limited, .. } => self.limited += 1,
            Answered { answer: Answer::SoldOut, quantity, .. } => {
                self.sold_out += 1;
                self.one_unit_sold_out |= *quantity == 1;
            }
            Answered { answer: Answer::Unknown(what) | Answer::Wrong(what), .. } => *self.errors.entry(what.clone()).or_default() += 1,
        }
    }

    fn note_order(&mut self, answered: &Answered<'_>) -> bool {
        let Answer::Held { id, .. } = answered.answer else { return false };
        self.orders.insert(*id, Acknowledged { buyer: answered.buyer, quantity: answered.quantity }).is_none()
    }

    fn enter_placed(&mut self, answered: &Answered<'_>) {
        self.held += 1;
        self.last_held = self.last_held.max(answered.at);
        self.held_latency.saturating_record(micros(answered.took));
    }

    /// Units that were promised.
    pub fn units(&self) -> u64 {
        self.orders.values().map(|order| u64::from(order.quantity)).sum()
    }

    /// Buyers who were promised more than `limit` units.
    pub fn buyers_beyond(&self, limit: u32) -> u64 {
        let mut units = HashMap::<usize, u64>::new();
        for order in self.orders.values() {
            *units.entry(order.buyer).or_default() += u64::from(order.quantity);
        }
        units.values().filter(|units| **units > u64::from(limit)).count() as u64
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::{Answered, Tally};
    use crate::answer::Answer;

    fn enter(tally: &mut Tally, buyer: usize, quantity: u32, answer: &Answer, flaw: Option<&str>) {
        let millisecond = Duration::from_millis(1);
        tally.enter(&Answered { buyer, quantity, answer, flaw, took: millisecond, at: millisecond });
    }

    #[test]
    fn every_request_is_counted_once_and_every_order_once() {
        let mut tally = Tally::new().unwrap();
        let held = |id, replayed| Answer::Held { id: Uuid::from_u128(id), replayed };
        enter(&mut tally, 1, 2, &held(1, false), None);
        enter(&mut tally, 1, 2, &held(1, true), None);
        enter(&mut tally, 2, 1, &held(2, true), None);
        enter(&mut tally, 2, 1, &held(3, true), Some("a repeat was given another order"));
        enter(&mut tally, 3, 1, &Answer::SoldOut, None);
        enter(&mut tally, 1, 1, &Answer::Limited, None);
        enter(&mut tally, 1, 1, &Answer::Wrong("404 item_not_found".into()), None);
        assert_eq!((tally.held, tally.replayed, tally.sold_out, tally.limited), (2, 1, 1, 1));
        assert_eq!(tally.errors.values().sum::<u64>(), 2);
        assert_eq!(tally.requested, 7);
        assert_eq!(tally.units(), 4, "an order that should not be is one that was promised");
        assert!(tally.one_unit_sold_out);
    }

    #[test]
    fn a_buyer_beyond_the_limit_is_found_whatever_each_answer_looked_like() {
        let mut tally = Tally::new().unwrap();
        for id in 0..3 {
            enter(&mut tally, 1, 1, &Answer::Held { id: Uuid::from_u128(id), replayed: false }, None);
        }
        enter(&mut tally, 2, 2, &Answer::Held { id: Uuid::from_u128(9), replayed: false }, None);
        assert_eq!((tally.buyers_beyond(2), tally.buyers_beyond(3)), (1, 0));
    }

    #[test]
    fn two_units_that_are_not_left_do_not_say_that_one_is_not() {
        let mut tally = Tally::new().unwrap();
        enter(&mut tally, 1, 2, &Answer::SoldOut, None);
        assert!(!tally.one_unit_sold_out);
    }
}
