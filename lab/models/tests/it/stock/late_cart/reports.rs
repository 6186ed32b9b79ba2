//! What there is, and what can happen next.

use stateright::{Model, Property};

use super::properties;

/// Lines of the cart. Each is of an item with one unit.
pub const LINES: usize = 2;
/// Reports of payments.
pub const REPORTS: usize = 2;
/// How many times the units of a line can be taken again, at most.
pub const ATTEMPTS_MAX: u8 = 2;

rules! {
    /// The units that a line had return before it takes any again.
    returns_first,
    /// A line that the ledger has as held takes no further units.
    takes_missing_lines_only,
    /// A payment changes nothing unless every line is held.
    confirms_held_lines_only,
    /// A report writes only if the cart is still expired.
    cart_version_is_checked,
    /// A transaction changes only lines that are as it has read them.
    line_versions_are_checked,
    /// The transaction that makes money due also frees the lines that took units again.
    refund_frees_held_lines,
    /// Units that are taken for a line that is not expired any more go straight back.
    late_takes_go_back,
    /// A line that is held while its cart is expired ends at the end of its own hold.
    held_lines_expire_alone,
}

/// State of the cart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cart {
    Expired,
    Confirmed,
    RefundDue,
}

/// State of a line in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Word {
    Expired,
    Held,
    Confirmed,
    RefundDue,
}

/// A line in the ledger. No two of its versions are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Order {
    pub word: Word,
    pub attempt: u8,
}

/// What a segment has decided for an attempt of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    None,
    Taken,
    Released,
}

/// Who has the unit of a line's item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    Free,
    Rival,
    /// This attempt of the line.
    Own(u8),
}

/// A report of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Report {
    Idle,
    /// It has read the lines of the expired cart. The units that this one had return.
    Returning {
        seen: [Order; LINES],
        line: usize,
    },
    /// It asks the segment of this line.
    Taking {
        seen: [Order; LINES],
        line: usize,
    },
    /// It knows what shall become of the cart.
    Deciding {
        to: Cart,
    },
    /// Its transaction has read the lines.
    Writing {
        to: Cart,
        seen: [Order; LINES],
    },
}

/// Everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    pub cart: Cart,
    /// The payment of the cart.
    pub payment: Option<usize>,
    pub orders: [Order; LINES],
    /// The attempts of each line up to here are recorded.
    pub recorded: [u8; LINES],
    pub units: [Unit; LINES],
    pub decisions: [[Decision; ATTEMPTS_MAX as usize + 1]; LINES],
    /// The attempts whose units are to return, a bit each.
    pub returns: [u8; LINES],
    pub reports: [Report; REPORTS],
    /// The payment that each report was acknowledged to have paid the cart with.
    pub acknowledged: [Option<usize>; REPORTS],
    /// The line that an expirer has read as held, as it was then.
    pub due: Option<(usize, Order)>,
    /// A report met the rival, or a line without an attempt left.
    pub was_refused: bool,
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A report takes its next step.
    Continue { report: usize },
    /// It crashes, and is sent again.
    Repeat { report: usize },
    /// The rival takes the unit of a line, or gives it back.
    Rival { line: usize },
    /// The recorder records what the line took.
    Record { line: usize },
    /// The unit of an ended attempt returns.
    Return { line: usize },
    /// The hold of a line has ended, and the expirer reads it.
    Look { line: usize },
    /// It acts on what it has read.
    Expire,
}

/// The cart under some rules.
#[derive(Debug, Clone)]
pub struct LateCart {
    pub rules: Rules,
    /// The payment of each report.
    pub payments: [usize; REPORTS],
    /// How many times the units of a line can be taken again.
    pub attempts: u8,
}

impl State {
    fn first() -> Self {
        let order = Order {
            word: Word::Expired,
            attempt: 0,
        };
        let decisions = [Decision::Taken, Decision::None, Decision::None];
        Self {
            cart: Cart::Expired,
            payment: None,
            orders: [order; LINES],
            recorded: [0; LINES],
            units: [Unit::Own(0); LINES],
            decisions: [decisions; LINES],
            returns: [1; LINES],
            reports: [Report::Idle; REPORTS],
            acknowledged: [None; REPORTS],
            due: None,
            was_refused: false,
        }
    }

    /// The oldest attempt of the line that its segment has taken and the ledger lacks.
    pub fn next_to_record(&self, line: usize) -> Option<u8> {
        let is_taken =
            |attempt: &u8| self.decisions[line][usize::from(*attempt)] == Decision::Taken;
        (self.recorded[line] + 1..=ATTEMPTS_MAX).find(is_taken)
    }

    /// A segment releases an attempt once.
    fn release(&mut self, line: usize, attempt: u8) {
        self.decisions[line][usize::from(attempt)] = Decision::Released;
        if self.units[line] == Unit::Own(attempt) {
            self.units[line] = Unit::Free;
        }
    }

    /// The line loses its units in the ledger, and they are to return.
    fn end(&mut self, line: usize, word: Word) {
        let order = &mut self.orders[line];
        order.word = word;
        self.returns[line] |= 1 << order.attempt;
    }
}

impl LateCart {
    fn go_on(&self, state: &mut State, report: usize) {
        match state.reports[report] {
            Report::Idle => self.read(state, report),
            Report::Returning { seen, line } => {
                if seen[line].word == Word::Expired && self.rules.returns_first {
                    state.release(line, seen[line].attempt);
                }
                state.reports[report] = Report::Taking { seen, line };
            }
            Report::Taking { seen, line } => self.take(state, report, seen, line),
            Report::Deciding { to } => {
                let all_held = state.orders.iter().all(|order| order.word == Word::Held);
                let may_write = to == Cart::RefundDue || all_held;
                if may_write || !self.rules.confirms_held_lines_only {
                    let seen = state.orders;
                    state.reports[report] = Report::Writing { to, seen };
                }
            }
            Report::Writing { to, seen } => self.write(state, report, to, seen),
        }
    }

    /// A cart that is paid is answered as it is: by its own payment, or as paid by another.
    fn read(&self, state: &mut State, report: usize) {
        let payment = self.payments[report];
        if state.cart == Cart::Expired {
            let seen = state.orders;
            state.reports[report] = Report::Returning { seen, line: 0 };
        } else if state.payment == Some(payment) {
            state.acknowledged[report] = Some(payment);
        }
    }

    fn take(&self, state: &mut State, report: usize, seen: [Order; LINES], line: usize) {
        let refused = Report::Deciding {
            to: Cart::RefundDue,
        };
        let taken = match line + 1 {
            LINES => Report::Deciding {
                to: Cart::Confirmed,
            },
            line => Report::Returning { seen, line },
        };
        let Order { word, attempt } = seen[line];
        state.reports[report] = match word {
            Word::Held if self.rules.takes_missing_lines_only => taken,
            Word::Expired | Word::Held if attempt == self.attempts => {
                state.was_refused = true;
                refused
            }
            Word::Expired | Word::Held => {
                let next = attempt + 1;
                let decision = &mut state.decisions[line][usize::from(next)];
                match (*decision, state.units[line]) {
                    (Decision::Taken, _) => taken,
                    (Decision::Released, _) => Report::Idle,
                    (Decision::None, Unit::Free) => {
                        *decision = Decision::Taken;
                        state.units[line] = Unit::Own(next);
                        taken
                    }
                    (Decision::None, unit) => {
                        state.was_refused |= unit == Unit::Rival;
                        refused
                    }
                }
            }
            Word::Confirmed | Word::RefundDue => Report::Idle,
        };
    }

    /// The transaction commits, or finds that something has changed since it has read it.
    fn write(&self, state: &mut State, report: usize, to: Cart, seen: [Order; LINES]) {
        state.reports[report] = Report::Idle;
        let is_superseded = state.cart != Cart::Expired && self.rules.cart_version_is_checked;
        let is_changed = state.orders != seen && self.rules.line_versions_are_checked;
        if is_superseded || is_changed {
            return;
        }
        for (line, seen) in seen.iter().enumerate() {
            match (to, seen.word) {
                (Cart::Confirmed, Word::Held) => state.orders[line].word = Word::Confirmed,
                (Cart::RefundDue, Word::Expired) => state.orders[line].word = Word::RefundDue,
                (Cart::RefundDue, Word::Held) if self.rules.refund_frees_held_lines => {
                    state.end(line, Word::RefundDue);
                }
                _ => {}
            }
        }
        let payment = self.payments[report];
        (state.cart, state.payment) = (to, Some(payment));
        state.acknowledged[report] = Some(payment);
    }

    fn record(&self, state: &mut State, line: usize) {
        let Some(attempt) = state.next_to_record(line) else {
            return;
        };
        state.recorded[line] = attempt;
        match state.orders[line].word {
            // The order has units: a repeat, for all that the ledger knows.
            Word::Held | Word::Confirmed => {}
            Word::RefundDue if self.rules.late_takes_go_back => {
                state.orders[line].attempt = attempt;
                state.returns[line] |= 1 << attempt;
            }
            Word::Expired | Word::RefundDue => {
                let word = Word::Held;
                state.orders[line] = Order { word, attempt };
            }
        }
    }

    fn expire(&self, state: &mut State) {
        let Some((line, seen)) = state.due.take() else {
            return;
        };
        if state.orders[line] == seen || !self.rules.line_versions_are_checked {
            state.end(line, Word::Expired);
        }
    }

    /// Takes one step.
    pub fn step(&self, state: &mut State, step: Step) {
        match step {
            Step::Continue { report } => self.go_on(state, report),
            Step::Repeat { report } => state.reports[report] = Report::Idle,
            Step::Rival { line } => {
                state.units[line] = match state.units[line] {
                    Unit::Free => Unit::Rival,
                    Unit::Rival => Unit::Free,
                    own @ Unit::Own(_) => own,
                }
            }
            Step::Record { line } => self.record(state, line),
            Step::Return { line } => {
                if state.returns[line] > 0 {
                    let attempt = state.returns[line].trailing_zeros();
                    state.returns[line] &= !(1 << attempt);
                    state.release(line, u8::try_from(attempt).unwrap_or(ATTEMPTS_MAX));
                }
            }
            Step::Look { line } => {
                let order = state.orders[line];
                let is_due = state.cart == Cart::Expired && self.rules.held_lines_expire_alone;
                if order.word == Word::Held && is_due {
                    state.due = Some((line, order));
                }
            }
            Step::Expire => self.expire(state),
        }
    }
}

impl Model for LateCart {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::first()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for report in 0..REPORTS {
            steps.push(Step::Continue { report });
            if state.reports[report] != Report::Idle {
                steps.push(Step::Repeat { report });
            }
        }
        for line in 0..LINES {
            steps.extend([Step::Rival { line }, Step::Record { line }]);
            steps.push(Step::Return { line });
            if state.due.is_none() {
                steps.push(Step::Look { line });
            }
        }
        steps.push(Step::Expire);
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
