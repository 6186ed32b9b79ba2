//! Two segments, their outboxes, the ledger's rows and its transfers.

use super::moving::Rules;

/// Segments of the model.
pub const SEGMENTS: usize = 2;
/// Transfers: the first from segment 0 to segment 1, the second back.
pub const TRANSFERS: usize = 2;
/// Reconcilers. Their tokens are 1, 2, ... ; the last one never runs but in a property.
pub const RECONCILERS: usize = 3;

/// An entry that is not recorded yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    /// An order took the unit, or gave it back (less than none).
    Taken(i8),
    /// A transfer went out with so many units.
    Out { transfer: usize, units: i8 },
    /// A transfer came in with so many units.
    In { transfer: usize, units: i8 },
}

/// A segment in Redis.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Segment {
    pub available: i8,
    /// Units that orders have.
    pub taken: i8,
    /// The highest token seen.
    pub fence: u8,
    /// What it remembers of each transfer: units that went or came.
    pub moved: [Option<i8>; TRANSFERS],
    /// What the recorder has not recorded yet.
    pub outbox: Vec<Entry>,
}

/// A transfer in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Transfer {
    /// It has not been planned.
    #[default]
    None,
    /// Units are to go.
    Planned,
    /// So many went.
    Out(i8),
    /// They came.
    Done(i8),
}

/// The ledger's row of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Row {
    pub available: i8,
    pub held: i8,
}

/// What a reconciler has sent of a transfer. It can be delivered at any time, and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Sent {
    pub out: bool,
    pub coming: Option<i8>,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub segments: [Segment; SEGMENTS],
    pub rows: [Row; SEGMENTS],
    pub transfers: [Transfer; TRANSFERS],
    /// The highest token that claimed the item in the ledger.
    pub fence: u8,
    /// By reconciler and transfer.
    pub sent: [[Sent; TRANSFERS]; RECONCILERS],
}

impl State {
    /// All units are at segment 0.
    pub fn initial(units: i8) -> Self {
        let mut state = Self {
            segments: Default::default(),
            rows: Default::default(),
            transfers: Default::default(),
            fence: 0,
            sent: Default::default(),
        };
        (state.segments[0].available, state.rows[0].available) = (units, units);
        state
    }

    /// `transfer_out`
    pub fn transfer_out(&mut self, rules: Rules, transfer: usize, asked: i8, token: u8) {
        let segment = &mut self.segments[transfer];
        if segment.moved[transfer].is_none() && segment.fence <= token {
            let units = segment.available.min(asked);
            segment.moves(rules, transfer, -units, token);
            segment.outbox.push(Entry::Out { transfer, units });
        }
    }

    /// `transfer_in`
    pub fn transfer_in(&mut self, rules: Rules, transfer: usize, units: i8, token: u8) {
        let segment = &mut self.segments[1 - transfer];
        if segment.moved[transfer].is_none() && segment.fence <= token {
            segment.moves(rules, transfer, units, token);
            segment.outbox.push(Entry::In { transfer, units });
        }
    }

    /// The recorder records the first entry of a segment's outbox.
    pub fn record(&mut self, segment: usize) {
        let entry = self.segments[segment].outbox.remove(0);
        let row = &mut self.rows[segment];
        match entry {
            Entry::Taken(units) => {
                (row.available, row.held) = (row.available - units, row.held + units)
            }
            Entry::Out { transfer, units } if self.transfers[transfer] == Transfer::Planned => {
                self.transfers[transfer] = Transfer::Out(units);
                row.available -= units;
            }
            Entry::In { transfer, units } if self.transfers[transfer] == Transfer::Out(units) => {
                self.transfers[transfer] = Transfer::Done(units);
                row.available += units;
            }
            // It does not apply.
            Entry::Out { .. } | Entry::In { .. } => {}
        }
    }
}

impl Segment {
    fn moves(&mut self, rules: Rules, transfer: usize, units: i8, token: u8) {
        self.available += units;
        self.fence = token;
        self.moved[transfer] = Some(units).filter(|_| rules.transfers_are_remembered);
    }

    /// A unit is taken, or (less than none) given back.
    pub fn take(&mut self, units: i8) {
        (self.available, self.taken) = (self.available - units, self.taken + units);
        self.outbox.push(Entry::Taken(units));
    }
}
