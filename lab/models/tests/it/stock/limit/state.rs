//! Home, the other segment, the ledger, and whose transactions are open.

/// What happened at home, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// It took the order. This stands in the outbox.
    Took(usize),
    /// It let the order go on. This does not.
    LetGo(usize),
    /// It was set right: it counts what the ledger has of the buyer. This stands in the outbox.
    Repaired { counted: usize },
}

/// An order in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    #[default]
    Unknown,
    Held,
    Rejected,
}

/// An open transaction of a recorder: the order it is about to record, how many units it saw that
/// the buyer held, and whether there had been an off-home order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transaction {
    pub order: usize,
    pub held: usize,
    pub is_off_home: bool,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub home: Vec<Event>,
    /// Orders that home has let go on at some time: the message may still arrive.
    pub sent: Vec<bool>,
    /// What the other segment took.
    pub other: Vec<usize>,
    /// By order.
    pub orders: Vec<Order>,
    /// What of home's outbox is recorded.
    pub recorded: Vec<Event>,
    /// How much of the other's.
    pub off_home_recorded: usize,
    /// The result of a query for off-home orders that came too early.
    pub looked: Option<bool>,
    pub at_home: Option<Transaction>,
    pub off_home: Option<Transaction>,
    /// What was read of home, and what the buyer held.
    pub repairing: Option<(Vec<Event>, usize)>,
    pub failovers: u8,
}

/// Without it, repairs could go on without end.
const REPAIRED_MOST: usize = 2;

impl State {
    pub fn initial(orders: usize) -> Self {
        Self {
            home: Vec::new(),
            sent: vec![false; orders],
            other: Vec::new(),
            orders: vec![Order::Unknown; orders],
            recorded: Vec::new(),
            off_home_recorded: 0,
            looked: None,
            at_home: None,
            off_home: None,
            repairing: None,
            failovers: 0,
        }
    }

    /// What home counts for the buyer.
    pub fn counted(&self) -> usize {
        self.home.iter().fold(0, |counted, event| {
            if let Event::Repaired { counted } = event {
                *counted
            } else {
                counted + 1
            }
        })
    }

    /// Whether home has an answer for the order. What was recorded is restored when it is repaired.
    pub fn home_knows(&self, order: usize) -> bool {
        let was_repaired = self
            .home
            .iter()
            .any(|event| matches!(event, Event::Repaired { .. }));
        self.home.iter().any(
            |event| matches!(event, Event::Took(known) | Event::LetGo(known) if *known == order),
        ) || (was_repaired && self.orders[order] != Order::Unknown)
    }

    /// What of home's history can be read.
    pub fn outbox(&self) -> impl Iterator<Item = Event> {
        self.home
            .iter()
            .copied()
            .filter(|event| !matches!(event, Event::LetGo(_)))
    }

    /// The next order that home's recorder finds: nothing if the outbox does not begin with what
    /// was recorded.
    pub fn next_at_home(&self) -> Option<usize> {
        let mut outbox = self.outbox();
        let is_anchored = self
            .recorded
            .iter()
            .all(|recorded| outbox.next() == Some(*recorded));
        match outbox.next() {
            Some(Event::Took(order)) if is_anchored => Some(order),
            _ => None,
        }
    }

    /// The next order of the other segment's outbox.
    pub fn next_off_home(&self) -> Option<usize> {
        self.other.get(self.off_home_recorded).copied()
    }

    /// Whether it is written down that an order strayed.
    pub fn has_is_off_home(&self) -> bool {
        self.off_home_recorded > 0
    }

    /// Units that the buyer has.
    pub fn held(&self) -> usize {
        self.orders
            .iter()
            .filter(|order| **order == Order::Held)
            .count()
    }

    /// An order that is there already stays what it is.
    pub fn record(&mut self, order: usize, holds: bool) {
        if self.orders[order] == Order::Unknown {
            self.orders[order] = if holds { Order::Held } else { Order::Rejected };
        }
    }

    pub fn is_within_bounds(&self) -> bool {
        self.home
            .iter()
            .filter(|event| matches!(event, Event::Repaired { .. }))
            .count()
            <= REPAIRED_MOST
    }
}
