//! What can happen next.

use stateright::{Model, Property};

/// An audit compares each segment alone.
const SEGMENTS: usize = 1;
/// A piece of a walk is one order.
const ORDERS: usize = 2;
/// Full audits that may be under way at once.
const WALKERS: usize = 2;

/// What is promised of a full audit.
pub const NO_FALSE_ALARM: &str = "a full audit finds no fault that was not there";
/// The same.
pub const NONE_MISSED: &str = "a full audit that is good has found its rows and orders to agree";
/// What is promised of an audit without a walk.
pub const FAULT_STANDS: &str = "a fault that was noted is told until a later snapshot was good";
/// The same.
pub const CURRENT_IS_TRUE: &str = "rows are called current only if no order was changed since, except by hand, and no fault stands";

rules! {
    /// All pieces read the orders of one moment.
    pieces_share_a_snapshot,
    /// And the rows are those of that moment.
    rows_are_of_the_snapshot,
    /// One transaction changes an order and its row.
    order_and_row_change_together,
    /// A walk that was ended is no audit.
    only_a_whole_walk_is_good,
    /// A row has a version besides its counters.
    every_change_moves_the_revision,
    /// The revision that is noted is the one that was compared.
    revision_is_of_the_snapshot,
    /// The ledger keeps the last fault.
    faults_are_noted,
    /// A good audit counts from its beginning.
    good_is_dated_by_its_beginning,
    /// A fault counts from its end.
    fault_is_dated_by_its_end,
    /// A fault stands above a revision that has not moved.
    nothing_is_current_beside_a_fault,
}

/// Audits under some rules, and how much of them is checked.
#[derive(Debug, Clone)]
pub struct Walks {
    /// The rules that hold.
    pub rules: Rules,
    /// Full audits that begin.
    pub walks: u8,
}

/// Where the unit of an order is. A reacquired order is held again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Order {
    #[default]
    None,
    Held(usize),
    Ended,
}

type Orders = [Order; ORDERS];
/// Held units by segment.
type Units = [i8; SEGMENTS];

fn units(orders: &[Order]) -> Units {
    let mut units = [0; SEGMENTS];
    for order in orders {
        if let Order::Held(segment) = order {
            units[*segment] += 1;
        }
    }
    units
}

/// A full audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Walk {
    #[default]
    None,
    Begun {
        at: u8,
    },
    Reading(Reading),
    Found(Found),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Reading {
    began: u8,
    snapshot: Snapshot,
    rows: Units,
    orders: Orders,
    /// Orders that were read, as they were read.
    pieces: usize,
}

/// What is true of the snapshot of an audit. Only the properties know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Snapshot {
    at: u8,
    /// Rows and orders agreed.
    agreed: bool,
    /// An order was changed since by a service, or by hand.
    moved: bool,
    harmed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Found {
    began: u8,
    ended: u8,
    snapshot: Snapshot,
    rows: Units,
    is_good: bool,
}

/// A row of `good_audits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Good {
    at: u8,
    rows: Units,
    /// Whether the version of a row has changed since.
    is_old: bool,
    snapshot: Snapshot,
}

/// Everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct State {
    orders: Orders,
    rows: Units,
    /// A row that follows its order (only in a weakened variant).
    late: Option<(usize, i8)>,
    /// The order that is changed by hand, and where it was held.
    harm: Harm,
    now: u8,
    begun: u8,
    walks: [Walk; WALKERS],
    good: Option<Good>,
    /// When the fault in `failed_audits` was found.
    failed: Option<u8>,
    /// The latest snapshots of noted audits.
    good_snapshot: u8,
    failed_snapshot: u8,
    /// An order was changed by hand at some time.
    was_harmed: bool,
    false_alarm: bool,
    missed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Harm {
    #[default]
    None,
    Done {
        order: usize,
        segment: usize,
    },
    /// The order went on as it was. Its row is wrong for good.
    Over,
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The recorder records an order, or reacquires it.
    Hold {
        order: usize,
        segment: usize,
    },
    /// It is cancelled, or expires.
    End {
        order: usize,
    },
    /// Its row follows, or the process dies before (only in a weakened variant).
    ChangeRow,
    DieBeforeRow,
    /// An operator ends an order by hand, and holds it again.
    Harm {
        order: usize,
    },
    Mend,
    /// A full audit notes the time.
    Begin {
        walker: usize,
    },
    /// Its transaction begins.
    Open {
        walker: usize,
    },
    /// It reads the next piece.
    Read {
        walker: usize,
    },
    /// It writes down what it has found.
    Note {
        walker: usize,
    },
    /// It ends before it has.
    Crash {
        walker: usize,
    },
}

impl State {
    fn agrees(&self) -> bool {
        units(&self.orders) == self.rows
    }

    fn tick(&mut self) -> u8 {
        self.now += 1;
        self.now
    }

    fn snapshots(&mut self) -> impl Iterator<Item = &mut Snapshot> {
        let walks = self.walks.iter_mut().filter_map(|walk| match walk {
            Walk::Reading(reading) => Some(&mut reading.snapshot),
            Walk::Found(found) => Some(&mut found.snapshot),
            Walk::None | Walk::Begun { .. } => None,
        });
        walks.chain(self.good.as_mut().map(|good| &mut good.snapshot))
    }

    /// Whether an audit without a walk tells of a fault.
    fn fault(&self) -> bool {
        self.failed
            .is_some_and(|failed| self.good.is_none_or(|good| failed >= good.at))
    }
}

fn open(state: &mut State, walker: usize) {
    let Walk::Begun { at: began } = state.walks[walker] else {
        return;
    };
    let snapshot = Snapshot {
        at: state.tick(),
        agreed: state.agrees(),
        moved: false,
        harmed: false,
    };
    state.walks[walker] = Walk::Reading(Reading {
        began,
        snapshot,
        rows: state.rows,
        orders: state.orders,
        pieces: 0,
    });
}

fn find(state: &mut State, walker: usize, reading: Reading, is_good: bool) {
    let snapshot = reading.snapshot;
    state.missed |= is_good && !snapshot.agreed;
    state.false_alarm |= !is_good && (snapshot.agreed || !state.was_harmed);
    state.walks[walker] = Walk::Found(Found {
        began: reading.began,
        ended: state.tick(),
        snapshot,
        rows: reading.rows,
        is_good,
    });
}

impl Walks {
    /// Whether an audit without a walk calls the rows current.
    fn is_current(&self, state: &State) -> bool {
        let moves = self.rules.every_change_moves_the_revision;
        let is_of_rows = |good: Good| good.rows == state.rows && !(moves && good.is_old);
        let hides = self.rules.nothing_is_current_beside_a_fault && state.fault();
        state.good.is_some_and(is_of_rows) && !hides
    }

    /// A service changes an order and its row.
    fn change(&self, state: &mut State, order: usize, to: Order, segment: usize, by: i8) {
        state.orders[order] = to;
        if self.rules.order_and_row_change_together {
            state.rows[segment] += by;
        } else {
            state.late = Some((segment, by));
        }
        for snapshot in state.snapshots() {
            snapshot.moved = true;
        }
        if let Some(good) = &mut state.good {
            good.is_old = true;
        }
        if matches!(state.harm, Harm::Done { order: harmed, .. } if harmed == order) {
            state.harm = Harm::Over;
        }
    }

    fn read(&self, state: &mut State, walker: usize) {
        let (orders, rows) = (state.orders, state.rows);
        let Walk::Reading(reading) = &mut state.walks[walker] else {
            return;
        };
        if !self.rules.pieces_share_a_snapshot {
            reading.orders[reading.pieces] = orders[reading.pieces];
        }
        reading.pieces += 1;
        if reading.pieces == ORDERS {
            if !self.rules.rows_are_of_the_snapshot {
                reading.rows = rows;
            }
            let reading = *reading;
            find(
                state,
                walker,
                reading,
                units(&reading.orders) == reading.rows,
            );
        }
    }

    fn crash(&self, state: &mut State, walker: usize) {
        let walk = std::mem::take(&mut state.walks[walker]);
        if let Walk::Reading(reading) = walk
            && !self.rules.only_a_whole_walk_is_good
        {
            find(state, walker, reading, true);
        }
    }

    fn note(&self, state: &mut State, walker: usize) {
        let Walk::Found(found) = std::mem::take(&mut state.walks[walker]) else {
            return;
        };
        if found.is_good {
            self.note_good(state, found);
        } else {
            self.note_failed(state, found);
        }
    }

    fn note_good(&self, state: &mut State, found: Found) {
        state.good_snapshot = state.good_snapshot.max(found.snapshot.at);
        let at = if self.rules.good_is_dated_by_its_beginning {
            found.began
        } else {
            state.tick()
        };
        let compared = self.rules.revision_is_of_the_snapshot;
        let good = Good {
            at,
            rows: if compared { found.rows } else { state.rows },
            is_old: compared && found.snapshot.moved,
            snapshot: found.snapshot,
        };
        if state.good.is_none_or(|before| before.at <= at) {
            state.good = Some(good);
        }
    }

    fn note_failed(&self, state: &mut State, found: Found) {
        state.failed_snapshot = state.failed_snapshot.max(found.snapshot.at);
        let at = if self.rules.fault_is_dated_by_its_end {
            found.ended
        } else {
            found.began
        };
        if !self.rules.faults_are_noted {
            return;
        }
        state.failed = state.failed.max(Some(at));
    }

    fn order_steps(&self, state: &State, order: usize, steps: &mut Vec<Step>) {
        match state.orders[order] {
            Order::None | Order::Ended => {
                steps.extend((0..SEGMENTS).map(|segment| Step::Hold { order, segment }));
            }
            Order::Held(segment) => {
                // A constraint of the ledger keeps a counter from going below 0.
                if state.rows[segment] > 0 {
                    steps.push(Step::End { order });
                }
                if state.harm == Harm::None {
                    steps.push(Step::Harm { order });
                }
            }
        }
    }

    fn walk_steps(&self, state: &State, walker: usize, steps: &mut Vec<Step>) {
        match state.walks[walker] {
            Walk::None => {
                if state.begun < self.walks {
                    steps.push(Step::Begin { walker });
                }
                return;
            }
            Walk::Begun { .. } => steps.push(Step::Open { walker }),
            Walk::Reading(_) => steps.push(Step::Read { walker }),
            Walk::Found(_) => steps.push(Step::Note { walker }),
        }
        steps.push(Step::Crash { walker });
    }
}

impl Model for Walks {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.late.is_some() {
            steps.extend([Step::ChangeRow, Step::DieBeforeRow]);
        } else {
            for order in 0..ORDERS {
                self.order_steps(state, order, steps);
            }
        }
        if matches!(state.harm, Harm::Done { .. }) {
            steps.push(Step::Mend);
        }
        for walker in 0..WALKERS {
            self.walk_steps(state, walker, steps);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = *state;
        match step {
            Step::Hold { order, segment } => {
                self.change(&mut next, order, Order::Held(segment), segment, 1);
            }
            Step::End { order } => {
                if let Order::Held(segment) = state.orders[order] {
                    self.change(&mut next, order, Order::Ended, segment, -1);
                }
            }
            Step::ChangeRow => {
                if let Some((segment, by)) = next.late.take() {
                    next.rows[segment] += by;
                }
            }
            Step::DieBeforeRow => next.late = None,
            Step::Harm { order } => {
                if let Order::Held(segment) = state.orders[order] {
                    (next.harm, next.was_harmed) = (Harm::Done { order, segment }, true);
                    next.orders[order] = Order::Ended;
                    next.snapshots().for_each(|snapshot| snapshot.harmed = true);
                }
            }
            Step::Mend => {
                if let Harm::Done { order, segment } = state.harm {
                    next.harm = Harm::None;
                    next.orders[order] = Order::Held(segment);
                }
            }
            Step::Begin { walker } => {
                next.begun += 1;
                next.walks[walker] = Walk::Begun { at: next.tick() };
            }
            Step::Open { walker } => open(&mut next, walker),
            Step::Read { walker } => self.read(&mut next, walker),
            Step::Note { walker } => self.note(&mut next, walker),
            Step::Crash { walker } => self.crash(&mut next, walker),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_FALSE_ALARM, |_, state: &State| !state.false_alarm),
            Property::always(NONE_MISSED, |_, state: &State| !state.missed),
            Property::always(FAULT_STANDS, |_, state: &State| {
                state.failed_snapshot <= state.good_snapshot || state.fault()
            }),
            Property::always(CURRENT_IS_TRUE, |walks: &Self, state: &State| {
                let is_true = |good: Good| {
                    let Snapshot {
                        agreed,
                        moved,
                        harmed,
                        ..
                    } = good.snapshot;
                    agreed && !moved && (state.agrees() || harmed)
                };
                !walks.is_current(state) || state.good.is_some_and(is_true) && !state.fault()
            }),
            Property::sometimes("an order moves between two pieces", |_, state: &State| {
                let moved = |walk: &Walk| matches!(walk, Walk::Reading(reading) if reading.pieces == 1 && reading.snapshot.moved);
                state.walks.iter().any(moved)
            }),
            Property::sometimes("a fault is taken back", |_, state: &State| {
                state.failed.is_some() && !state.fault()
            }),
            Property::sometimes("a fault stands above a good audit", |_, state: &State| {
                state.good.is_some() && state.fault()
            }),
        ]
    }
}
