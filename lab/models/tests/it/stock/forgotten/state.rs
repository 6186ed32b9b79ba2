//! Home, the other segment, the ledger, and how far the reconciler is.

/// What happened at home, in its order. None of it stands in the outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// It declined the order.
    Declined(usize),
    /// A repair restored that the order is elsewhere.
    Restored(usize),
    /// Its decisions are complete, as of this history.
    Marked(u8),
}

/// How far a reconciler is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Check {
    /// Home's history when it began, and the other segment's.
    pub history: u8,
    pub other_history: u8,
    /// The token under which it works.
    pub token: u8,
    pub since: u8,
    /// What the other segment had when all deadlines had passed.
    pub tail: Option<usize>,
    /// Whether home knew every order when they were compared.
    pub complete: bool,
}

/// What the door has found of an order that home does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Found {
    /// The ledger had it at that moment.
    InTheLedgerOnly,
    Nowhere,
}

/// A repeat at the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Door {
    pub order: usize,
    /// Home's history and its fence, if home was marked.
    pub before: Option<(u8, u8)>,
    pub found: Option<Found>,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub home: Vec<Event>,
    /// Which history home's server has.
    pub history: u8,
    pub other_history: u8,
    /// The highest token that home has seen.
    pub fence: u8,
    /// By order: the deadline of the message to the other segment.
    pub sent: Vec<Option<u8>>,
    /// What the other segment took.
    pub other: Vec<usize>,
    /// How much of it the ledger has.
    pub recorded: usize,
    pub check: Option<Check>,
    pub door: Option<Door>,
    /// The door has refused an order that the ledger had.
    pub wrongly_refused: bool,
    pub now: u8,
    pub failovers: u8,
    pub losses: u8,
    pub other_failovers: u8,
}

impl State {
    pub fn initial(orders: usize) -> Self {
        Self {
            home: vec![Event::Marked(0)],
            history: 0,
            other_history: 0,
            fence: 0,
            sent: vec![None; orders],
            other: Vec::new(),
            recorded: 0,
            check: None,
            door: None,
            wrongly_refused: false,
            now: 0,
            failovers: 0,
            losses: 0,
            other_failovers: 0,
        }
    }

    /// Whether home answers a repeat of the order.
    pub fn home_knows(&self, order: usize) -> bool {
        self.home.iter().any(
            |event| matches!(event, Event::Declined(known) | Event::Restored(known) if *known == order),
        )
    }

    /// The mark at home.
    pub fn mark(&self) -> Option<u8> {
        self.home.iter().rev().find_map(|event| match event {
            Event::Marked(history) => Some(*history),
            Event::Declined(_) | Event::Restored(_) => None,
        })
    }

    pub fn is_marked(&self) -> bool {
        self.mark() == Some(self.history)
    }

    /// What the door reads of home: its history and its fence, if home is marked.
    pub fn checked(&self) -> Option<(u8, u8)> {
        self.is_marked().then_some((self.history, self.fence))
    }

    /// Orders of the ledger.
    pub fn ledger(&self) -> &[usize] {
        &self.other[..self.recorded]
    }

    /// Orders of the ledger that home does not know.
    pub fn forgotten(&self) -> Vec<usize> {
        let mut forgotten = self.ledger().to_vec();
        forgotten.retain(|order| !self.home_knows(*order));
        forgotten
    }

    pub fn restore(&mut self, orders: &[usize]) {
        self.home
            .extend(orders.iter().copied().map(Event::Restored));
    }
}
