//! The segment in Redis. Its history is what is kept, and its state follows from that: so a
//! failover is a shorter history.

use super::ledger::{Ledger, Order};

/// Orders of the model.
pub const ORDERS: usize = 2;

/// The id of an outbox entry. Ids rise, and only their order means anything.
pub type Id = u8;
/// A fencing token.
pub type Token = u8;

/// What the segment answers to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Decision {
    /// It does not know the order.
    #[default]
    None,
    /// The unit is the order's.
    Taken,
    /// It was, or the ledger could not cover it.
    Released,
}

/// What `restore_orders` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Memory {
    /// Answers to the orders that the ledger has; `None` leaves what is there.
    pub decisions: [Decision; ORDERS],
    /// The buyer's count, or nothing if it is not written.
    pub counted: Option<u8>,
    /// Units of the transfer if it was made; or nothing if it is not written.
    pub transferred: Option<Option<i8>>,
}

/// What a script did. All but `Restored` leave an entry in the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// `open_segment`
    Opened { units: i8 },
    /// `reserve_home`
    Taken(usize),
    /// `release`
    Released(usize),
    /// `transfer_in` of so many units, or `transfer_out` if it is less than none. None is a
    /// transfer out that found nothing.
    Transferred(i8),
    /// `halt_segment`, which may drop what the segment has stored of orders and transfers
    Halted { token: Token, drops: bool },
    /// `restore_orders`
    Restored(Memory),
    /// `adjust`
    Adjusted(i8),
}

/// One script that changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Op {
    /// The entry that it wrote, 0 if it wrote none.
    pub id: Id,
    /// What it did.
    pub effect: Effect,
}

/// The segment after some history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Segment {
    pub available: i8,
    pub decisions: [Decision; ORDERS],
    /// The one buyer's count.
    pub counted: u8,
    /// Units of the transfer, once it has been made here.
    pub transferred: Option<i8>,
    /// The highest token seen.
    pub fence: Token,
    /// Who repairs it.
    pub repairing: Option<Token>,
    /// Whether `restore_orders` has run since it was halted.
    pub restored: bool,
    /// The last entry.
    pub last: Id,
}

impl Segment {
    /// Nothing if the history is empty: then there is no such segment.
    pub fn after(history: &[Op]) -> Option<Self> {
        let mut segment = Self::default();
        history.iter().for_each(|op| segment.apply(*op));
        (!history.is_empty()).then_some(segment)
    }

    fn apply(&mut self, Op { id, effect }: Op) {
        self.last = self.last.max(id);
        match effect {
            Effect::Opened { units } => self.available = units,
            Effect::Taken(order) => self.give(order),
            Effect::Released(order) => self.take_back(order),
            Effect::Transferred(units) => {
                self.available += units;
                self.transferred = Some(units);
            }
            Effect::Halted { token, drops } => {
                if drops {
                    (self.decisions, self.counted, self.transferred) = Default::default();
                }
                (self.fence, self.repairing, self.restored) =
                    (self.fence.max(token), Some(token), false);
            }
            Effect::Restored(memory) => self.remember(memory),
            Effect::Adjusted(units) => (self.available, self.repairing) = (units, None),
        }
    }

    fn give(&mut self, order: usize) {
        self.available -= 1;
        self.counted += 1;
        self.decisions[order] = Decision::Taken;
    }

    fn take_back(&mut self, order: usize) {
        self.available += 1;
        // As in the script: a count that is too low ends at zero.
        self.counted = self.counted.saturating_sub(1);
        self.decisions[order] = Decision::Released;
    }

    fn remember(&mut self, memory: Memory) {
        self.restored = true;
        let written = self
            .decisions
            .iter_mut()
            .zip(memory.decisions)
            .filter(|(_, decision)| *decision != Decision::None);
        written.for_each(|(known, decision)| *known = decision);
        self.counted = memory.counted.unwrap_or(self.counted);
        self.transferred = memory.transferred.unwrap_or(self.transferred);
    }

    /// Whether it is what the ledger says.
    pub fn agrees_with(&self, ledger: &Ledger) -> bool {
        let decisions = ledger.orders.map(Order::decision);
        (
            self.available,
            self.decisions,
            self.counted,
            self.transferred,
        ) == (
            ledger.available,
            decisions,
            ledger.counted(),
            ledger.transfer.moved(),
        )
    }
}
