//! A segment's history, the ledger, and what two recorders keep in memory.

/// Number of an outbox entry. A promoted server may use one again that was lost.
pub type Id = u8;
/// What a caller sends with a batch. No two batches have the same.
pub type Nonce = u8;

/// An entry by its position and its content. The nonce is part of the content, and so of the
/// fingerprint by which the ledger knows the entry.
pub type Mark = (Id, Nonce);

/// What a script did to the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// `open_segment`, or `adjust` at the end of a repair: the segment has the orders that the
    /// ledger held then.
    Set { held: u8 },
    /// `reserve_home` took the unit for this order.
    Took(usize),
    /// `reserve_home` declined the order and counted it. This leaves no entry.
    LetGo(usize),
}

/// One script that changed the segment. An effect without an entry has the mark of the entry
/// before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Op {
    pub mark: Mark,
    pub effect: Effect,
}

impl Op {
    pub fn is_entry(&self) -> bool {
        !matches!(self.effect, Effect::LetGo(_))
    }
}

/// An entry as `reserve_home` hands it to the recorder of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fresh {
    /// Position of the entry before, and the nonce that the segment keeps.
    pub previous: Mark,
    pub mark: Mark,
    pub order: usize,
}

/// What a recorder has read in a claim and is going to commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Read {
    pub checkpoint: Mark,
    pub entries: Vec<Op>,
}

/// A recorder's memory. A crash empties it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Recorder {
    /// The checkpoint after the last commit of this recorder, and whether an order had been off
    /// home by then.
    pub row: Option<(Mark, bool)>,
    pub fresh: Vec<Fresh>,
    pub read: Option<Read>,
    /// The outbox is to be trimmed up to this entry.
    pub trim: Option<Mark>,
}

impl Recorder {
    /// It has just recorded this entry, which its process wrote.
    fn behind(mark: Mark) -> Self {
        Self {
            row: Some((mark, false)),
            ..Self::default()
        }
    }
}

/// An order in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    #[default]
    Unknown,
    Held,
    /// Held, by another segment.
    HeldOffHome,
    Rejected,
}

impl Order {
    pub fn is_held(self) -> bool {
        matches!(self, Self::Held | Self::HeldOffHome)
    }
}

/// The segment's row, the buyer's orders, and whether one of them was off home.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ledger {
    pub checkpoint: Mark,
    pub available: i8,
    pub orders: Vec<Order>,
    pub had_spillover: bool,
}

impl Ledger {
    pub fn held(&self) -> usize {
        self.orders.iter().filter(|order| order.is_held()).count()
    }

    pub fn hold(&mut self, order: usize) {
        self.orders[order] = Order::Held;
        self.available -= 1;
    }

    /// The orders that hold units of this segment.
    pub fn held_here(&self) -> u8 {
        set(self
            .orders
            .iter()
            .enumerate()
            .filter(|(_, order)| **order == Order::Held)
            .map(|(order, _)| order))
    }
}

fn set(orders: impl Iterator<Item = usize>) -> u8 {
    orders.fold(0, |set, order| set | 1 << order)
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// What the master of today has run.
    pub history: Vec<Op>,
    /// The first entry that was not trimmed.
    pub first: Id,
    pub ledger: Ledger,
    pub recorders: Vec<Recorder>,
    /// Orders that home has let go at some time: another segment may still take them.
    pub let_go: u8,
    pub nonces: Nonce,
    pub failovers: u8,
    pub repairs: u8,
    /// For the properties only: an entry was recorded from memory after a failover had lost it.
    pub recorded_a_lost_one: bool,
    pub recorded_directly: bool,
}

impl State {
    pub fn initial(units: i8, orders: usize, recorders: usize) -> Self {
        let mark = (1, 0);
        Self {
            history: vec![Op {
                mark,
                effect: Effect::Set { held: 0 },
            }],
            first: 1,
            ledger: Ledger {
                checkpoint: mark,
                available: units,
                orders: vec![Order::Unknown; orders],
                had_spillover: false,
            },
            recorders: vec![Recorder::behind(mark); recorders],
            let_go: 0,
            nonces: 0,
            failovers: 0,
            repairs: 0,
            recorded_a_lost_one: false,
            recorded_directly: false,
        }
    }

    /// Orders that have a unit of the segment.
    pub fn taken(&self) -> u8 {
        self.history.iter().fold(0, |taken, op| match op.effect {
            Effect::Set { held } => held,
            Effect::Took(order) => taken | 1 << order,
            Effect::LetGo(_) => taken,
        })
    }

    /// Orders that home counts for the buyer.
    pub fn counted(&self) -> u8 {
        self.history.iter().fold(0, |counted, op| match op.effect {
            Effect::Set { held } => held,
            Effect::Took(order) | Effect::LetGo(order) => counted | 1 << order,
        })
    }

    /// The outbox: position and nonce of the last entry, as the segment keeps them. An entry
    /// without a nonce leaves the one before.
    pub fn last(&self) -> Mark {
        let id = self.history.last().map_or(0, |op| op.mark.0);
        let taken = self
            .history
            .iter()
            .rev()
            .find(|op| matches!(op.effect, Effect::Took(_)));
        (id, taken.map_or(0, |op| op.mark.1))
    }

    /// Adds an entry, and returns its mark.
    pub fn append(&mut self, effect: Effect) -> Mark {
        self.nonces += 1;
        let mark = (self.last().0 + 1, self.nonces);
        self.history.push(Op { mark, effect });
        mark
    }

    pub fn let_go(&mut self, order: usize) {
        let mark = self.history.last().map_or((0, 0), |op| op.mark);
        let effect = Effect::LetGo(order);
        self.history.push(Op { mark, effect });
        self.let_go |= 1 << order;
    }

    /// The entries that a reader of the outbox finds.
    pub fn outbox(&self) -> impl Iterator<Item = Op> {
        let first = self.first;
        let entries = self.history.iter().filter(|op| op.is_entry());
        entries.copied().filter(move |op| op.mark.0 >= first)
    }

    pub fn has(&self, mark: Mark) -> bool {
        self.outbox().any(|op| op.mark == mark)
    }

    /// The entries behind the checkpoint.
    pub fn behind_checkpoint(&self) -> Vec<Op> {
        let (checkpoint, _) = self.ledger.checkpoint;
        self.outbox().filter(|op| op.mark.0 > checkpoint).collect()
    }
}
