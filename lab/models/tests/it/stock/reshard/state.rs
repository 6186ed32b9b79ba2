//! The segments, the attempts of the order, the ledger, and the reconciler that reshards.

/// Segments after the resharding. The item is created with one less.
pub const SEGMENTS: usize = 3;

/// The ring that the item is created with. The first and the second try to reshard it make 1 and 2.
pub const OLD_RING: u8 = 0;

/// Tries: a reconciler that dies, and its successor.
pub const TRIES: u8 = 2;

/// The segments of a ring in the order in which the buyer's order tries them, home first. The hash
/// of the buyer is 2.
pub fn around(ring: u8) -> &'static [usize] {
    if ring == OLD_RING {
        &[0, 1]
    } else {
        &[2, 0, 1]
    }
}

/// What a segment has stored for the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    Declined,
    /// Here.
    Taken,
    /// At home: taken at another segment.
    Elsewhere,
    SoldOut,
}

/// A segment in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Segment {
    pub available: u8,
    pub decision: Option<Decision>,
    pub ring: u8,
    pub halted: bool,
    /// The outbox has the order's entry, and the ledger has not recorded it.
    pub unrecorded: bool,
}

/// Where an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Attempt {
    /// It has not begun, or has ended: the caller may begin it again.
    #[default]
    Idle,
    /// It is about to ask the segment at this place of its ring.
    Asks { ring: u8, place: usize },
    /// All segments of its ring have declined, and it has the proof that no unit was free.
    /// `falsely`: one was.
    Ends { ring: u8, falsely: bool },
}

/// What the reconciler has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Reconciler {
    /// The try: its token and the ring that it makes. 0: none yet.
    pub token: u8,
    pub halted: [bool; SEGMENTS],
    pub set: [bool; SEGMENTS],
    /// The open transaction: the order and its segment, as far as the outboxes have been staged.
    pub staged: Option<usize>,
    pub is_done: bool,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub segments: [Segment; SEGMENTS],
    pub attempts: Vec<Attempt>,
    pub reconciler: Reconciler,
    /// The segment of the order in the ledger.
    pub ledger: Option<usize>,
    /// The ring in the ledger.
    pub ring: u8,
    /// Units that other buyers have.
    pub others: u8,
    /// How often a segment took units for the order.
    pub takes: u8,
    /// The order was told `sold_out` although a unit was free, or although it had one.
    pub told_falsely: bool,
    pub was_refused: bool,
}

impl State {
    pub fn initial(units: u8, attempts: usize) -> Self {
        let mut segments = [Segment::default(); SEGMENTS];
        segments[0].available = units;
        Self {
            segments,
            attempts: vec![Attempt::Idle; attempts],
            reconciler: Reconciler::default(),
            ledger: None,
            ring: OLD_RING,
            others: 0,
            takes: 0,
            told_falsely: false,
            was_refused: false,
        }
    }

    pub fn free(&self) -> u8 {
        self.segments.iter().map(|segment| segment.available).sum()
    }
}
