//! The ledger: the segment's row, its orders, its transfer; and what the recorder and a repairer
//! make of entries.

use super::{
    rules::Rules,
    segment::{Decision, Effect, Id, Memory, ORDERS, Op, Token},
};

/// An order in the ledger. Later states are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Order {
    /// The ledger does not have it.
    #[default]
    Unknown,
    /// It could not be covered. The buyer is notified.
    Rejected,
    /// Held or confirmed.
    Held,
    /// Cancelled, expired or refunded; its return is pending.
    Returning,
    /// Its unit is back.
    Returned,
}

impl Order {
    /// What its segment has to answer.
    pub fn decision(self) -> Decision {
        match self {
            Self::Unknown => Decision::None,
            Self::Held | Self::Returning => Decision::Taken,
            Self::Rejected | Self::Returned => Decision::Released,
        }
    }
}

/// The transfer, if the model has one: a top-up of one unit or a take-back of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Transfer {
    /// There is none.
    #[default]
    None,
    /// One unit is to come: state `out`.
    ToCome,
    /// One unit is to go if there is one: state `planned`.
    ToGo,
    /// It came, or went: state `done`, or `out`.
    Moved(i8),
}

impl Transfer {
    /// Units that came, or less than none if they went.
    pub fn moved(self) -> Option<i8> {
        match self {
            Self::Moved(units) => Some(units),
            Self::None | Self::ToCome | Self::ToGo => None,
        }
    }
}

/// The row, its orders and its transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ledger {
    pub available: i8,
    pub orders: [Order; ORDERS],
    pub transfer: Transfer,
    /// The entry up to which all is recorded.
    pub checkpoint: Id,
    /// The highest token that claimed the item.
    pub fence: Token,
}

impl Ledger {
    /// What the buyer is counted for.
    pub fn counted(&self) -> u8 {
        self.orders
            .iter()
            .filter(|order| matches!(order, Order::Held | Order::Returning))
            .count() as u8
    }

    /// What the recorder makes of entries, nothing if it has to stop: a repairer set the counter to
    /// what this row does not say.
    pub fn recorded(mut self, rules: Rules, entries: &[Op]) -> Option<Self> {
        for Op { id, effect } in entries {
            if let Effect::Adjusted(units) = *effect
                && rules.recorder_checks_the_adjusted_units
                && units != self.available
            {
                return None;
            }
            self.apply(*effect, u8::MAX);
            self.checkpoint = *id;
        }
        Some(self)
    }

    /// What a repairer makes of the whole outbox. What the ledger has already, and what does not
    /// apply, changes nothing.
    pub fn repaired(
        mut self,
        rules: Rules,
        limit: u8,
        entries: impl Iterator<Item = Effect>,
    ) -> Self {
        let limit = if rules.limit_checked_when_repairing {
            limit
        } else {
            u8::MAX
        };
        entries.for_each(|effect| self.apply(effect, limit));
        self
    }

    fn apply(&mut self, effect: Effect, limit: u8) {
        match effect {
            Effect::Taken(order) if self.orders[order] == Order::Unknown => {
                self.hold_or_reject(order, limit)
            }
            Effect::Released(order) if self.orders[order] == Order::Returning => {
                self.orders[order] = Order::Returned;
                self.available += 1;
            }
            Effect::Transferred(units)
                if self.transfer.moved().is_none() && self.available + units >= 0 =>
            {
                self.transfer = Transfer::Moved(units);
                self.available += units;
            }
            _ => {}
        }
    }

    fn hold_or_reject(&mut self, order: usize, limit: u8) {
        if self.available > 0 && self.counted() < limit {
            self.orders[order] = Order::Held;
            self.available -= 1;
        } else {
            self.orders[order] = Order::Rejected;
        }
    }

    /// What the segment must know.
    pub fn memory(&self, rules: Rules) -> Memory {
        let decisions = if rules.decisions_restored {
            self.orders.map(Order::decision)
        } else {
            Default::default()
        };
        Memory {
            decisions,
            // The weaker version writes the buyers who hold something.
            counted: Some(self.counted()).filter(|count| rules.counts_restored || *count > 0),
            transferred: rules.transfers_restored.then_some(self.transfer.moved()),
        }
    }

    /// Commits what was decided on a row that is not there any more, as a commit without the
    /// version does: it overwrites the counter and the checkpoint, and every order moves on as it
    /// was decided.
    pub fn overwritten_with(mut self, decided: &Self) -> Self {
        (self.available, self.checkpoint) = (decided.available, decided.checkpoint);
        self.transfer = if decided.transfer.moved().is_some() {
            decided.transfer
        } else {
            self.transfer
        };
        for (order, decided) in self.orders.iter_mut().zip(decided.orders) {
            *order = decided.max(*order);
        }
        self
    }
}
