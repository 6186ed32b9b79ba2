//! What the segments hold and what the network may still deliver.

use std::array;

use super::rules::{CLOCK_ERROR, PATIENCE, Rules, Time};

/// The longest ring that a model may have.
pub const SEGMENTS: usize = 3;
/// The segment where every spillover of the model starts.
pub const HOME: usize = 0;
/// The most orders that a model may have.
pub const ORDERS: usize = 2;
/// The most attempts of one order that a model may have under way at once.
pub const ATTEMPTS: usize = 4;

/// What a segment has answered to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Decision {
    /// Nothing: it was not asked, or has forgotten.
    #[default]
    None,
    /// It gives no units to this order in this round.
    Declined,
    /// The units are this order's.
    Taken,
    /// Home only, final: another segment has `Taken`.
    TakenElsewhere,
    /// Home only, final: every segment has `Declined`.
    SoldOut,
    /// Home only: every segment has `Declined`, and the order is not sold out. It may be reopened.
    GivenUp,
    /// The units were this order's and are not any more: at the segment that gave them, and at
    /// home.
    Released,
}

/// An answer as a segment keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Record {
    /// What was answered.
    pub decision: Decision,
    /// At home the latest deadline that any attempt presented, for as long as the spillover is in
    /// `spillovers`; elsewhere the deadline of the ask that was declined. It decides who may forget
    /// the record, and when.
    pub deadline: Option<Time>,
    /// The latest round that was declined.
    pub round: u8,
}

/// How far an attempt has come. It leaves behind every message that it has sent: they can be
/// delivered at any time, and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// It has asked the segments up to this one.
    Asking(u8),
    /// This segment has `Taken`; home is to know.
    TookAt(u8),
    /// Every segment has declined; home is to know.
    AllDeclined,
}

impl Stage {
    /// How many segments have been asked.
    pub fn asked(self, ring: usize) -> usize {
        match self {
            Self::Asking(segment) | Self::TookAt(segment) => usize::from(segment) + 1,
            Self::AllDeclined => ring,
        }
    }

    /// Whether `finish_spillover` has been sent.
    pub fn finishes(self) -> bool {
        !matches!(self, Self::Asking(_) | Self::TookAt(0))
    }
}

/// How an attempt ends a spillover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Another segment has `Taken`.
    Elsewhere,
    /// Every segment has declined.
    SoldOut,
    /// Every segment has declined, and it is not sold out.
    GivenUp,
}

/// One run along the ring, by a client's request, a retry, or the spillover worker. A crashed one
/// just never moves again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    /// Fixed when it starts, carried by each of its messages.
    pub deadline: Time,
    /// The round in which it asks. It has sent what belongs to earlier rounds, too.
    pub round: u8,
    /// How far it has come.
    pub stage: Stage,
    /// The first round that it asked the other segments in, if it has reopened the order.
    pub since_round: u8,
}

/// The newest `forget_declined` that any worker has sent. An older one has an older deadline and
/// can do nothing that this cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Forgetting {
    /// The remembered deadline of the spillover that the worker read.
    pub until: Time,
    /// Which of the segments other than home have answered it.
    pub done: [bool; SEGMENTS - 1],
}

/// How far it has come that an order's unit goes back. What has been sent can be delivered at any
/// time, and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReturnStage {
    /// The ledger lists the return: the count is to be released.
    Pending,
    /// Home has replied: the unit is to be released.
    CountIsBack,
    /// The ledger has recorded it, and no process starts it again.
    Recorded,
}

/// An order that was cancelled, has expired, was refunded, or that repair rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Return {
    /// The segment that gave the unit.
    pub segment: u8,
    /// How far it has come.
    pub stage: ReturnStage,
}

/// One order id: its records, its entry in `spillovers`, its attempts and its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Order {
    /// What each segment remembers.
    pub records: [Record; SEGMENTS],
    /// Whether home's `spillovers` lists it.
    pub in_spillovers: bool,
    /// Attempts whose messages may still have an effect.
    pub attempts: [Option<Attempt>; ATTEMPTS],
    /// The newest message to the other segments to forget.
    pub forgetting: Option<Forgetting>,
    /// The newest message to home to forget, by the deadline of its spillover.
    pub forgetting_home: Option<Time>,
    /// Whether any caller has ever got the reply "taken".
    pub promised: bool,
    /// Whether a caller was told "sold out", and home has not forgotten it since.
    pub refused: bool,
    /// How often any segment ever took for it.
    pub takes: u8,
    /// Its unit goes back, or has gone back.
    pub giving_back: Option<Return>,
}

impl Order {
    /// What home remembers.
    pub fn home(&self) -> Decision {
        self.records[HOME].decision
    }

    /// How many segments gave units to it.
    pub fn times_taken(&self) -> usize {
        self.records
            .iter()
            .filter(|record| record.decision == Decision::Taken)
            .count()
    }

    /// Whether it is its buyer's: taken, and not cancelled.
    pub fn is_held(&self) -> bool {
        self.times_taken() > 0 && self.giving_back.is_none()
    }

    /// Whether home counts it against its buyer's limit.
    pub fn is_counted(&self) -> bool {
        matches!(
            self.home(),
            Decision::Declined | Decision::Taken | Decision::TakenElsewhere
        )
    }

    fn times(&mut self) -> impl Iterator<Item = &mut Time> {
        let records = self
            .records
            .iter_mut()
            .filter_map(|record| record.deadline.as_mut());
        let attempts = self
            .attempts
            .iter_mut()
            .flatten()
            .map(|attempt| &mut attempt.deadline);
        let forgetting = self
            .forgetting
            .iter_mut()
            .map(|forgetting| &mut forgetting.until);
        records
            .chain(attempts)
            .chain(forgetting)
            .chain(&mut self.forgetting_home)
    }

    fn drop_silent_attempts(&mut self, rules: Rules, now: Time) {
        for slot in &mut self.attempts {
            let speaks = |attempt: Attempt| {
                rules.obeys_reservation(now, attempt.deadline)
                    || (attempt.stage.finishes() || attempt.round > 0)
                        && rules.obeys_finish(now, attempt.deadline)
            };
            *slot = slot.filter(|attempt| speaks(*attempt));
        }
        self.attempts.sort_unstable();
    }
}

/// Everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    /// What the fastest clock shows.
    pub now: Time,
    /// Units that other orders hold or that are on their way from one segment to another.
    pub outside: i8,
    /// What each segment may give.
    pub available: [i8; SEGMENTS],
    /// The buyer's count at home.
    pub counted: u8,
    /// The buyer's orders.
    pub orders: [Order; ORDERS],
}

impl State {
    /// No order yet, and every unit somewhere else: it may arrive at any segment.
    pub fn initial(units: i8) -> Self {
        Self {
            now: CLOCK_ERROR,
            outside: units,
            available: [0; SEGMENTS],
            counted: 0,
            orders: array::from_fn(|_| Order::default()),
        }
    }

    /// The state without unobservable parts: attempts past every deadline, which of two attempts or
    /// orders comes first, and the age of deadlines that have passed everywhere.
    /// Of times that are over only their order is kept, and that makes a finite number of states
    /// out of endless time.
    pub fn normalized(mut self, rules: Rules, orders: usize) -> Self {
        for order in &mut self.orders {
            order.drop_silent_attempts(rules, self.now);
        }
        let mut in_use = 0_u64;
        for recent in self.now - CLOCK_ERROR..=self.now + PATIENCE {
            in_use |= 1 << recent;
        }
        for time in self.orders.iter_mut().flat_map(Order::times) {
            in_use |= 1 << *time;
        }
        let shorten = |time: &mut Time| *time = (in_use & ((1 << *time) - 1)).count_ones() as Time;
        self.orders
            .iter_mut()
            .flat_map(Order::times)
            .for_each(shorten);
        shorten(&mut self.now);
        self.orders[..orders].sort_unstable();
        self
    }
}
