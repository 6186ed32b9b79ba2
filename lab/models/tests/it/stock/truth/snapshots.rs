//! What can happen next.

use stateright::{Model, Property};

/// The most segments that a model may have.
const SEGMENTS: usize = 3;
/// Transfers that may be under way, or not settled, at once.
const TRANSFERS: usize = 2;

/// What is promised.
pub const PROOF: &str = "at the instant of a proof no more units were free than it says";

rules! {
    /// A proof takes two snapshots.
    two_snapshots,
    /// No segment may have gained between its two readings.
    gains_are_compared,
    /// `leaving` is added to what a segment has available.
    units_in_transit_count,
    /// The script that takes the units out notes them in `leaving`.
    leaving_is_written_with_out,
    /// Units that arrive are a gain.
    arrival_is_a_gain,
    /// A transfer is settled only after its units have arrived.
    settled_after_arrival,
    /// A segment is settled only when no transfer from it is under way.
    settled_when_all_arrived,
    /// A settlement is refused when units have left since it was decided on.
    settlement_names_the_last_out,
    /// A repair is a gain.
    repair_is_a_gain,
    /// A repair renews `left`, so that settlements of before are refused.
    repair_refuses_older_settlements,
}

/// Snapshots under some rules, and how much of them is checked.
#[derive(Debug, Clone)]
pub struct Snapshots {
    /// The rules that hold.
    pub rules: Rules,
    /// Segments of the item.
    pub segments: usize,
    /// Units of the item.
    pub units: u8,
}

/// How far a transfer of one unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    /// It has left, and `leaving` does not say so yet (only in a weakened variant).
    Unnoted,
    Out,
    Arrived,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Transfer {
    stage: Stage,
    from: usize,
    to: usize,
}

/// The settlements of a segment that were sent. Each may be delivered at any time, and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Settlement {
    #[default]
    None,
    /// No unit has left since it was decided on.
    Valid,
    /// Some have: it is refused.
    Old,
}

/// Segments, as bits.
type Bits = u8;

/// The snapshots of one process. Of those before the last two it keeps nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Reader {
    is_second: bool,
    /// Segments that this snapshot has read.
    read: Bits,
    /// Segments that have gained since the first snapshot read them.
    gained: Bits,
    /// What the first snapshot has read.
    first: [u8; SEGMENTS],
    /// Free units when the second one began. With one snapshot only: the fewest since it began.
    free: u8,
}

/// Everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    available: [u8; SEGMENTS],
    leaving: [u8; SEGMENTS],
    settlements: [Settlement; SEGMENTS],
    transfers: [Option<Transfer>; TRANSFERS],
    reader: Reader,
    /// A proof said less than was free.
    is_wrong: bool,
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// An order takes a unit.
    Take { segment: usize },
    /// A unit comes back.
    Release { segment: usize },
    /// `transfer_out`.
    Out { from: usize, to: usize },
    /// `leaving` is written (only in a weakened variant).
    Note { transfer: usize },
    /// `transfer_in`.
    In { transfer: usize },
    /// The reconciler sees no open transfer from the segment, and sends `settle_transfers`.
    SendSettlement { segment: usize },
    /// That is delivered, perhaps again.
    Settle { segment: usize },
    /// The segment had lost its last entries, and `adjust` sets it to the ledger's state. A unit
    /// that the ledger could not cover comes back.
    Repair { segment: usize, comes_back: bool },
    /// The second snapshot begins.
    Begin,
    /// A segment is read.
    Read { segment: usize },
}

impl State {
    fn initial(units: u8) -> Self {
        let mut available = [0; SEGMENTS];
        available[0] = units;
        Self {
            available,
            leaving: [0; SEGMENTS],
            settlements: Default::default(),
            transfers: [None; TRANSFERS],
            reader: Reader::default(),
            is_wrong: false,
        }
    }

    fn in_transit(&self) -> u8 {
        let on_the_way = |transfer: &&Transfer| transfer.stage != Stage::Arrived;
        self.transfers.iter().flatten().filter(on_the_way).count() as u8
    }

    fn free(&self) -> u8 {
        self.available.iter().sum::<u8>() + self.in_transit()
    }

    fn gain(&mut self, segment: usize) {
        let bit = 1 << segment;
        if self.reader.is_second || self.reader.read & bit != 0 {
            self.reader.gained |= bit;
        }
    }

    fn from(&self, segment: usize) -> impl Iterator<Item = &Transfer> {
        let all = self.transfers.iter().flatten();
        all.filter(move |transfer| transfer.from == segment)
    }
}

impl Snapshots {
    fn may_settle(&self, state: &State, segment: usize) -> bool {
        let arrived = |transfer: &Transfer| transfer.stage == Stage::Arrived;
        let mut transfers = state.from(segment);
        if !self.rules.settled_after_arrival {
            return transfers.next().is_some();
        }
        if !self.rules.settled_when_all_arrived {
            return transfers.any(arrived);
        }
        state.from(segment).count() > 0 && transfers.all(arrived)
    }

    fn segment_steps(&self, state: &State, segment: usize, steps: &mut Vec<Step>) {
        let outside = self.units - state.free();
        if state.available[segment] > 0 {
            steps.push(Step::Take { segment });
            if state.transfers.iter().any(Option::is_none) {
                let others = (0..self.segments).filter(|to| *to != segment);
                steps.extend(others.map(|to| Step::Out { from: segment, to }));
            }
        }
        if outside > 0 {
            steps.push(Step::Release { segment });
        }
        for comes_back in [false, true] {
            if !comes_back || outside > 0 {
                steps.push(Step::Repair {
                    segment,
                    comes_back,
                });
            }
        }
        if self.may_settle(state, segment) {
            steps.push(Step::SendSettlement { segment });
        }
        if state.settlements[segment] != Settlement::None {
            steps.push(Step::Settle { segment });
        }
        if state.reader.read & 1 << segment == 0 {
            steps.push(Step::Read { segment });
        }
    }

    fn out(&self, state: &mut State, from: usize, to: usize) {
        let Some(slot) = state.transfers.iter_mut().find(|slot| slot.is_none()) else {
            return;
        };
        let noted = self.rules.leaving_is_written_with_out;
        let stage = if noted { Stage::Out } else { Stage::Unnoted };
        *slot = Some(Transfer { stage, from, to });
        state.available[from] -= 1;
        state.leaving[from] += u8::from(noted);
        if state.settlements[from] == Settlement::Valid {
            state.settlements[from] = Settlement::Old;
        }
    }

    fn arrive(&self, state: &mut State, transfer: usize) {
        if let Some(transfer) = &mut state.transfers[transfer] {
            transfer.stage = Stage::Arrived;
            let to = transfer.to;
            state.available[to] += 1;
            if self.rules.arrival_is_a_gain {
                state.gain(to);
            }
        }
    }

    fn settle(&self, state: &mut State, segment: usize) {
        let valid = state.settlements[segment] == Settlement::Valid;
        if valid || !self.rules.settlement_names_the_last_out {
            state.leaving[segment] = 0;
            for slot in &mut state.transfers {
                *slot = slot.filter(|each| each.from != segment || each.stage != Stage::Arrived);
            }
        }
    }

    fn repair(&self, state: &mut State, segment: usize, comes_back: bool) {
        let open = state.from(segment);
        let open = open.filter(|transfer| transfer.stage != Stage::Arrived);
        state.leaving[segment] = open.count() as u8;
        state.available[segment] += u8::from(comes_back);
        if self.rules.repair_is_a_gain {
            state.gain(segment);
        }
        // The failover had undone the last `out`, and with it `left`.
        if state.settlements[segment] != Settlement::None {
            state.settlements[segment] = if self.rules.repair_refuses_older_settlements {
                Settlement::Old
            } else {
                Settlement::Valid
            };
        }
    }

    fn read(&self, state: &mut State, segment: usize) {
        let bit = 1 << segment;
        let in_transit = if self.rules.units_in_transit_count {
            state.leaving[segment]
        } else {
            0
        };
        let seen = state.available[segment] + in_transit;
        let free = state.free();
        let reader = &mut state.reader;
        if reader.is_second {
            let agrees = if self.rules.gains_are_compared {
                reader.gained & bit == 0
            } else {
                reader.first[segment] == seen
            };
            if !agrees {
                *reader = Reader::default();
                return;
            }
        } else {
            reader.first[segment] = seen;
            if reader.read == 0 {
                reader.free = free;
            }
        }
        reader.read |= bit;
        if reader.read == (1 << self.segments) - 1 {
            self.complete(state, free);
        }
    }

    fn complete(&self, state: &mut State, free: u8) {
        let reader = &mut state.reader;
        if reader.is_second || !self.rules.two_snapshots {
            state.is_wrong |= reader.first.iter().sum::<u8>() < reader.free;
            *reader = Reader::default();
        } else {
            *reader = Reader {
                is_second: true,
                read: 0,
                free,
                ..*reader
            };
        }
    }
}

impl Model for Snapshots {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        assert!(self.segments <= SEGMENTS, "at most {SEGMENTS} segments");
        vec![State::initial(self.units)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for segment in 0..self.segments {
            self.segment_steps(state, segment, steps);
        }
        for (transfer, each) in state.transfers.iter().enumerate() {
            match each.map(|transfer| transfer.stage) {
                Some(Stage::Unnoted) => {
                    steps.extend([Step::Note { transfer }, Step::In { transfer }]);
                }
                Some(Stage::Out) => steps.push(Step::In { transfer }),
                Some(Stage::Arrived) | None => {}
            }
        }
        if state.reader.is_second && state.reader.read == 0 {
            steps.push(Step::Begin);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = *state;
        match step {
            Step::Take { segment } => next.available[segment] -= 1,
            Step::Release { segment } => {
                next.available[segment] += 1;
                next.gain(segment);
            }
            Step::Out { from, to } => self.out(&mut next, from, to),
            Step::Note { transfer } => {
                if let Some(transfer) = &mut next.transfers[transfer] {
                    transfer.stage = Stage::Out;
                    next.leaving[transfer.from] += 1;
                }
            }
            Step::In { transfer } => self.arrive(&mut next, transfer),
            Step::SendSettlement { segment } => next.settlements[segment] = Settlement::Valid,
            Step::Settle { segment } => self.settle(&mut next, segment),
            Step::Repair {
                segment,
                comes_back,
            } => self.repair(&mut next, segment, comes_back),
            Step::Begin => next.reader.free = next.free(),
            Step::Read { segment } => self.read(&mut next, segment),
        }
        if !self.rules.two_snapshots && next.reader.read != 0 {
            next.reader.free = next.reader.free.min(next.free());
        }
        next.transfers.sort_unstable();
        Some(next).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(PROOF, |_, state: &State| !state.is_wrong),
            Property::sometimes("a unit is in transit during a proof", |_, state: &State| {
                state.reader.is_second && state.reader.read != 0 && state.in_transit() > 0
            }),
            Property::sometimes("a late settlement arrives", |_, state: &State| {
                state.settlements.contains(&Settlement::Old) && state.in_transit() > 0
            }),
        ]
    }
}
