//! What there is, and what can happen next.

use stateright::{Model, Property};

use super::properties;

/// Lines of the cart.
pub const LINES: usize = 2;
/// The request, and its repeat.
pub const REQUESTS: usize = 2;

rules! {
    /// The cart's row is written before a line takes units.
    row_first,
    /// Only a cart that is `held` can be paid.
    pays_held_carts_only,
    /// A payment changes nothing unless every line is held.
    pays_whole_carts_only,
    /// A cart becomes `held` only when the ledger has all of its lines as held.
    holds_recorded_lines_only,
    /// A change applies only to the version that it was decided on.
    versions_are_checked,
    /// No line expires while its cart is being placed or held.
    lines_wait_for_their_cart,
    /// The reconciler ends a cart that is being placed only after its deadline.
    settles_at_the_deadline,
    /// The reconciler looks at a cart that has failed until no line can be recorded any more.
    looks_until_no_line_can_come,
    /// A request that fails the cart says that this is all only if no other request has placed it.
    only_one_alone_settles,
    /// No segment takes for the cart long after its deadline.
    takes_end,
    /// An extension moves the end of every line's hold together with the cart's.
    extends_every_line,
}

/// State of the cart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cart {
    Placing,
    Held,
    Confirmed,
    Cancelled,
    Expired,
    Failed,
}

/// When a hold ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// At the end that it had at first.
    First,
    /// An extension has moved it.
    Extended,
}

/// The cart's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row {
    pub state: Cart,
    pub version: u8,
    /// When the cart's holds end.
    pub end: End,
    /// No reconciler looks at it any more.
    pub settled: bool,
}

impl Row {
    fn placing(version: u8) -> Self {
        Self {
            state: Cart::Placing,
            version,
            end: End::First,
            settled: false,
        }
    }
}

/// A line at its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Segment {
    /// The unit is free, and the line has no decision.
    Free,
    /// A rival has the unit.
    Rival,
    /// The line has the unit.
    Taken,
    /// The line has given it back.
    Released,
}

/// A line in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    Unknown,
    Held,
    Confirmed,
    /// Cancelled or expired: the unit is to return.
    Ended,
}

/// A request that places the cart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request {
    Idle,
    /// It has read this version, and taken so many lines.
    Taking {
        version: u8,
        lines: usize,
    },
    /// The next line was refused.
    Failing {
        version: u8,
        lines: usize,
    },
    Done,
}

/// How far time has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Time {
    Early,
    /// The cart's deadline has passed.
    Deadline,
    /// So has the time in which a request may still be on its way.
    Late,
}

/// Everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    pub row: Option<Row>,
    pub segments: [Segment; LINES],
    pub orders: [Order; LINES],
    /// When the hold of each line ends.
    pub ends: [End; LINES],
    pub requests: [Request; REQUESTS],
    /// What one of the actors has read and not acted on yet: the row may have changed since.
    pub read: Option<Row>,
    pub time: Time,
    /// The ends of holds that have passed, up to this one.
    pub passed: Option<End>,
    /// A segment has refused a line.
    pub refused: bool,
}

/// Who acts on the row, at once or long after it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    Payment,
    Cancellation,
    Extension,
    Reconciler,
}

impl Actor {
    const ALL: [Self; 4] = [
        Self::Payment,
        Self::Cancellation,
        Self::Extension,
        Self::Reconciler,
    ];
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Tick,
    /// The next end of holds passes.
    EndPasses,
    /// The rival takes the unit of a line, or gives it back.
    Rival {
        line: usize,
    },
    /// The request writes the row, or takes it over.
    Begin {
        request: usize,
    },
    /// It asks the segment of its next line.
    Take {
        request: usize,
    },
    /// It finds that the deadline has passed.
    GiveUp {
        request: usize,
    },
    /// It makes the cart `held`.
    Hold {
        request: usize,
    },
    /// It makes the cart `failed`.
    Fail {
        request: usize,
    },
    /// The recorder records what the line took.
    Record {
        line: usize,
    },
    /// The unit of an ended line returns.
    Return {
        line: usize,
    },
    /// The hold of a line ends, and it expires by itself.
    Expire {
        line: usize,
    },
    /// A payment is reported for the line alone.
    PayLine {
        line: usize,
    },
    /// Someone reads the row, to act on it later.
    Read,
    /// The actor acts on the row as it is, or as it was read then.
    Act {
        actor: Actor,
        is_late: bool,
    },
}

/// The saga under some rules.
#[derive(Debug, Clone)]
pub struct Saga {
    pub rules: Rules,
}

impl State {
    fn first() -> Self {
        Self {
            row: None,
            segments: [Segment::Free; LINES],
            orders: [Order::Unknown; LINES],
            ends: [End::First; LINES],
            requests: [Request::Idle; REQUESTS],
            read: None,
            time: Time::Early,
            passed: None,
            refused: false,
        }
    }

    /// Ends the lines that hold their units.
    fn end_lines(&mut self) {
        for order in &mut self.orders {
            if *order == Order::Held {
                *order = Order::Ended;
            }
        }
    }

    fn all_recorded(&self, lines: usize) -> bool {
        self.orders[..lines]
            .iter()
            .all(|order| *order != Order::Unknown)
    }

    /// Whether a hold that ends then has ended.
    pub fn has_passed(&self, end: End) -> bool {
        self.passed >= Some(end)
    }

    /// Whether the ledger knows all that the segments have taken.
    fn nothing_is_behind(&self) -> bool {
        let mut lines = self.segments.iter().zip(&self.orders);
        lines.all(|(segment, order)| *segment != Segment::Taken || *order != Order::Unknown)
    }
}

impl Saga {
    /// Changes the row, if it is as it was read.
    fn write(&self, state: &mut State, from: Row, to: Cart, settled: bool) -> bool {
        let Some(row) = state.row.filter(|row| self.is_current(*row, from)) else {
            return false;
        };
        let is_alone = row.version == from.version || !self.rules.only_one_alone_settles;
        state.row = Some(Row {
            state: to,
            version: row.version + u8::from(row.state != to),
            settled: settled && is_alone,
            ..row
        });
        true
    }

    /// Whether the row is still as it was read. Requests place a cart together, so its version
    /// changes while it is being placed.
    fn is_current(&self, row: Row, read: Row) -> bool {
        let is_current = match read.state {
            Cart::Placing => row.state == Cart::Placing,
            _ => row.version == read.version,
        };
        is_current || !self.rules.versions_are_checked
    }

    fn begin(&self, state: &mut State, request: usize) {
        let version = match &mut state.row {
            None => {
                state.row = Some(Row::placing(1));
                1
            }
            Some(row) if row.state == Cart::Placing => {
                row.version += 1;
                row.version
            }
            Some(_) => {
                state.requests[request] = Request::Done;
                return;
            }
        };
        let lines = match state.requests[request] {
            Request::Taking { lines, .. } => lines,
            _ => 0,
        };
        state.requests[request] = Request::Taking { version, lines };
    }

    fn take(&self, state: &mut State, request: usize) {
        let (version, lines) = match state.requests[request] {
            Request::Taking { version, lines } => (version, lines),
            // Only without the rule that the row comes first.
            _ => (0, 0),
        };
        let segment = &mut state.segments[lines];
        state.requests[request] = match segment {
            Segment::Free | Segment::Taken => {
                *segment = Segment::Taken;
                let lines = lines + 1;
                Request::Taking { version, lines }
            }
            Segment::Rival => {
                state.refused = true;
                Request::Failing { version, lines }
            }
            Segment::Released => Request::Done,
        };
    }

    fn hold(&self, state: &mut State, request: usize) {
        let Request::Taking { version, .. } = state.requests[request] else {
            return;
        };
        let all_held = state.orders.iter().all(|order| *order == Order::Held);
        if all_held || !self.rules.holds_recorded_lines_only {
            self.write(state, Row::placing(version), Cart::Held, false);
            state.requests[request] = Request::Done;
        }
    }

    fn fail(&self, state: &mut State, request: usize) {
        let Request::Failing { version, lines } = state.requests[request] else {
            return;
        };
        let is_alone = version == 1 || !self.rules.only_one_alone_settles;
        let settled = is_alone && state.all_recorded(lines);
        if self.write(state, Row::placing(version), Cart::Failed, settled) {
            state.end_lines();
        }
        state.requests[request] = Request::Done;
    }

    fn act(&self, state: &mut State, actor: Actor, is_late: bool) {
        let read = if is_late {
            state.read.take()
        } else {
            state.row
        };
        let Some(read) = read else {
            return;
        };
        match actor {
            Actor::Payment => self.pay(state, read),
            Actor::Cancellation => {
                if read.state == Cart::Held {
                    self.end(state, read, Cart::Cancelled, true);
                }
            }
            Actor::Extension => self.extend(state, read),
            Actor::Reconciler => self.reconcile(state, read),
        }
    }

    fn pay(&self, state: &mut State, read: Row) {
        let may_pay = read.state == Cart::Held
            || (read.state == Cart::Placing && !self.rules.pays_held_carts_only);
        let all_held = state.orders.iter().all(|order| *order == Order::Held);
        let looks = self.rules.pays_whole_carts_only && self.rules.pays_held_carts_only;
        if !may_pay || (looks && !all_held) {
            return;
        }
        if self.write(state, read, Cart::Confirmed, true) {
            for order in &mut state.orders {
                if *order == Order::Held {
                    *order = Order::Confirmed;
                }
            }
        }
    }

    /// Moves the end of the cart's holds, once: a repeat asks for the same end.
    fn extend(&self, state: &mut State, read: Row) {
        let may_extend = read.state == Cart::Held && read.end == End::First;
        let Some(row) = state.row.filter(|row| self.is_current(*row, read)) else {
            return;
        };
        if !may_extend {
            return;
        }
        state.row = Some(Row {
            state: read.state,
            version: row.version + 1,
            end: End::Extended,
            settled: false,
        });
        let lines = if self.rules.extends_every_line {
            LINES
        } else {
            1
        };
        state.ends[..lines].fill(End::Extended);
    }

    fn end(&self, state: &mut State, read: Row, to: Cart, settled: bool) {
        if self.write(state, read, to, settled) {
            state.end_lines();
        }
    }

    fn reconcile(&self, state: &mut State, read: Row) {
        let deadline = state.time >= Time::Deadline || !self.rules.settles_at_the_deadline;
        match read.state {
            Cart::Placing if deadline => self.end(state, read, Cart::Failed, false),
            Cart::Held if state.has_passed(read.end) => {
                self.end(state, read, Cart::Expired, true);
            }
            Cart::Failed => {
                let no_line_can_come =
                    state.time == Time::Late || !self.rules.looks_until_no_line_can_come;
                let settled = no_line_can_come && state.nothing_is_behind();
                self.end(state, read, Cart::Failed, settled);
            }
            _ => {}
        }
    }

    /// Takes one step.
    pub fn step(&self, state: &mut State, step: Step) {
        match step {
            Step::Tick => {
                state.time = match state.time {
                    Time::Early => Time::Deadline,
                    Time::Deadline | Time::Late => Time::Late,
                }
            }
            Step::EndPasses => {
                state.passed = match state.passed {
                    None => Some(End::First),
                    Some(_) => Some(End::Extended),
                }
            }
            Step::Rival { line } => {
                state.segments[line] = match state.segments[line] {
                    Segment::Free => Segment::Rival,
                    Segment::Rival => Segment::Free,
                    decided => decided,
                }
            }
            Step::Begin { request } => self.begin(state, request),
            Step::Take { request } => self.take(state, request),
            Step::GiveUp { request } => {
                if let Request::Taking { version, lines } = state.requests[request] {
                    state.requests[request] = Request::Failing { version, lines };
                }
            }
            Step::Hold { request } => self.hold(state, request),
            Step::Fail { request } => self.fail(state, request),
            Step::Record { line } => state.orders[line] = Order::Held,
            Step::Return { line } => state.segments[line] = Segment::Released,
            Step::Expire { line } => state.orders[line] = Order::Ended,
            Step::PayLine { line } => state.orders[line] = Order::Confirmed,
            Step::Read => state.read = state.row,
            Step::Act { actor, is_late } => self.act(state, actor, is_late),
        }
    }

    fn request_steps(&self, state: &State, request: usize, steps: &mut Vec<Step>) {
        let may_take = state.time < Time::Late || !self.rules.takes_end;
        match state.requests[request] {
            // The repeat begins after the request.
            Request::Idle if request > 0 && state.requests[0] == Request::Idle => {}
            Request::Idle => {
                steps.push(Step::Begin { request });
                if !self.rules.row_first && request == 0 && state.row.is_none() {
                    steps.push(Step::Take { request });
                }
            }
            Request::Taking { version: 0, .. } => steps.push(Step::Begin { request }),
            Request::Taking { lines, .. } => {
                if lines < LINES && may_take {
                    steps.push(Step::Take { request });
                }
                if lines == LINES {
                    steps.push(Step::Hold { request });
                }
                if lines < LINES && state.time >= Time::Deadline {
                    steps.push(Step::GiveUp { request });
                }
            }
            Request::Failing { version: 0, .. } | Request::Done => {}
            Request::Failing { .. } => steps.push(Step::Fail { request }),
        }
    }

    fn line_steps(&self, state: &State, line: usize, steps: &mut Vec<Step>) {
        let (segment, order) = (state.segments[line], state.orders[line]);
        if matches!(segment, Segment::Free | Segment::Rival) {
            steps.push(Step::Rival { line });
        }
        match (segment, order) {
            (Segment::Taken, Order::Unknown) => steps.push(Step::Record { line }),
            (Segment::Taken, Order::Ended) => steps.push(Step::Return { line }),
            (_, Order::Held) => {
                // Without a row the ledger takes it for an order of its own.
                let is_free = state.row.is_none_or(|row| row.state == Cart::Failed);
                if is_free || !self.rules.lines_wait_for_their_cart {
                    steps.push(Step::Expire { line });
                }
                if state.row.is_none() {
                    steps.push(Step::PayLine { line });
                }
            }
            _ => {}
        }
    }
}

impl Model for Saga {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::first()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        steps.push(Step::Tick);
        // Only the end of a held cart depends on it.
        if state.row.is_some_and(|row| row.state == Cart::Held) {
            steps.push(Step::EndPasses);
        }
        (0..REQUESTS).for_each(|request| self.request_steps(state, request, steps));
        (0..LINES).for_each(|line| self.line_steps(state, line, steps));
        if state.read.is_none() && state.row.is_some() {
            steps.push(Step::Read);
        }
        for actor in Actor::ALL {
            let when = [false, true].into_iter();
            steps.extend(when.map(|is_late| Step::Act { actor, is_late }));
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = *state;
        self.step(&mut next, step);
        Some(next).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
