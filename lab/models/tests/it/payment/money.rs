//! What there is, and what can happen next.

use stateright::{Model, Property};

use super::properties;

/// What the payment may be reported for: an order and a cart.
pub const PAYERS: usize = 2;
/// Which of them is the cart.
const CART: usize = 1;

rules! {
    /// A payment that was returned is bound to nothing.
    spent_is_never_bound,
    /// A payment that is bound is bound to nothing else.
    is_bound_once,
    /// A payment is bound in the transaction that confirms what it pays.
    binds_with_the_step,
    /// An admin's note finds out in its transaction whether the payment has paid what the row
    /// names.
    done_looks_again,
    /// An admin's note spends the payment.
    done_spends,
    /// An admin's note about one payer is refused if the payment has paid the other.
    done_spares_another,
    /// A return of a payment of which nothing is known is remembered.
    first_return_is_kept,
    /// A return spends a payment that was noted as one that nothing could take.
    noted_payment_is_spent,
    /// A report of a return is acknowledged once what it has paid is refunded.
    refunds_before_answer,
    /// An admin who returns the money of what was paid spends the payment in the same transaction.
    refund_spends,
    /// The list shows no payment that was returned.
    list_hides_returned,
    /// The list shows no payment that has paid another payer than that of its row.
    list_hides_another,
    /// A report that is refused is noted before it is acknowledged.
    refused_is_noted,
    /// A report of a payment that was returned before anything was known of it claims the return,
    /// and the refund of it that has failed.
    report_claims_return,
}

/// State of an order or a cart. What is paid is paid by this payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payer {
    Held,
    Expired,
    Cancelled,
    Confirmed,
    RefundDue,
    Refunded,
}

impl Payer {
    /// Whether it has the payment's money, or had it.
    pub fn is_paid(self) -> bool {
        matches!(self, Self::Confirmed | Self::RefundDue | Self::Refunded)
    }

    /// Whether it has the payment's money.
    pub fn has_money(self) -> bool {
        matches!(self, Self::Confirmed | Self::RefundDue)
    }
}

/// The payment's row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Row {
    /// What it is bound to, or was reported for.
    pub payer: Option<usize>,
    pub is_returned: bool,
}

/// The journal entry of a payment that the payer could not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    None,
    Noted,
    /// An admin has noted it as returned.
    Done,
}

/// A report of the payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Report {
    Idle,
    /// It has read the payer.
    Read {
        right_total: bool,
        payer: Payer,
    },
    /// It has bound the payment: only without the rule that the step does.
    Bound {
        to: Payer,
    },
    /// The payer cannot take the payment.
    Refused,
    /// It was not returned when the report looked.
    Noting,
    /// The answer is known.
    Answering,
}

/// A failed refund.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    None,
    /// Nothing was known of its payment.
    Unclaimed,
    Known,
    /// An admin has returned its money.
    Done,
}

/// Everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    pub payers: [Payer; PAYERS],
    pub row: Option<Row>,
    pub entries: [Entry; PAYERS],
    pub reports: [Report; PAYERS],
    /// A report for it was acknowledged.
    pub reported: [bool; PAYERS],
    /// The provider has returned the money, whether it has reported so or not.
    pub provider_returned: bool,
    /// A report of the return has yet to refund what the payment has paid.
    pub refunding: Option<usize>,
    pub failure: Failure,
    /// A return, an admin's note or an admin's refund was acknowledged.
    pub returned: bool,
    /// The buyer has the money.
    pub with_buyer: bool,
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The hold ends.
    Expire { payer: usize },
    /// The buyer cancels.
    Cancel { payer: usize },
    /// A report arrives, and reads the payer.
    Report { payer: usize, right_total: bool },
    /// It takes its next step. `units`: those of an expired hold can be taken again.
    Continue { payer: usize, units: bool },
    /// The provider returns the money.
    Return,
    /// It reports so, and may name a payer.
    ReportReturn { named: Option<usize> },
    /// That report refunds what the payment has paid.
    Refund,
    /// The provider reports that its refund has failed.
    Fail,
    /// An admin notes the row of this payer.
    Done { payer: usize },
    /// An admin notes the row of the failed refund.
    DoneFailure,
    /// An admin returns the money of what was paid.
    AdminRefund { payer: usize },
}

/// The payment under some rules.
#[derive(Debug, Clone)]
pub struct Payment {
    pub rules: Rules,
}

impl State {
    fn first() -> Self {
        Self {
            payers: [Payer::Held; PAYERS],
            row: None,
            entries: [Entry::None; PAYERS],
            reports: [Report::Idle; PAYERS],
            reported: [false; PAYERS],
            provider_returned: false,
            refunding: None,
            failure: Failure::None,
            returned: false,
            with_buyer: false,
        }
    }

    pub fn is_returned(&self) -> bool {
        self.row.is_some_and(|row| row.is_returned)
    }

    fn bound_to(&self) -> Option<usize> {
        self.row.and_then(|row| row.payer)
    }

    fn has_paid(&self, payer: usize) -> bool {
        self.bound_to() == Some(payer) && self.payers[payer].is_paid()
    }

    /// What the payment was reported for, as far as the ledger knows.
    fn known_payer(&self) -> Option<usize> {
        let noted = || self.entries.iter().position(|entry| *entry != Entry::None);
        self.bound_to().or_else(noted)
    }

    /// Marks the payment as returned. It keeps its payer if it has one.
    fn spend(&mut self, payer: Option<usize>) {
        self.row = Some(Row {
            payer: self.bound_to().or(payer),
            is_returned: true,
        });
    }

    /// Whether money is due because the refund has failed.
    pub fn failure_is_due(&self) -> bool {
        self.failure == Failure::Known
            && self.is_returned()
            && !self.payers.iter().any(|payer| payer.has_money())
    }
}

impl Payment {
    /// Whether the list has the row of the payer.
    pub fn is_listed(&self, state: &State, payer: usize) -> bool {
        let is_hidden = self.rules.list_hides_returned && state.is_returned();
        let hides = |of: usize| of == payer || self.rules.list_hides_another;
        let has_paid = (0..PAYERS).any(|of| state.has_paid(of) && hides(of));
        state.entries[payer] == Entry::Noted && !is_hidden && !has_paid
    }

    /// Binds the payment by the rule. `false`: it is refused.
    fn bind(&self, state: &mut State, payer: usize) -> bool {
        let row = state.row.unwrap_or_default();
        let is_spent = row.is_returned && self.rules.spent_is_never_bound;
        let is_of_another = row.payer.is_some_and(|of| of != payer) && self.rules.is_bound_once;
        if is_spent || is_of_another {
            return false;
        }
        state.row = Some(Row {
            payer: Some(payer),
            ..row
        });
        true
    }

    fn claim(&self, state: &mut State, payer: usize) {
        if !self.rules.report_claims_return {
            return;
        }
        state.spend(Some(payer));
        if state.failure == Failure::Unclaimed {
            state.failure = Failure::Known;
        }
    }

    fn answer(state: &mut State, payer: usize) {
        state.reports[payer] = Report::Idle;
        state.reported[payer] = true;
    }

    fn go_on(&self, state: &mut State, payer: usize, units: bool) {
        match state.reports[payer] {
            Report::Idle => {}
            Report::Read {
                right_total: false, ..
            } => state.reports[payer] = Report::Refused,
            Report::Read { payer: read, .. } => match read {
                Payer::Held => self.pay(state, payer, read, Payer::Confirmed),
                Payer::Expired if state.is_returned() && self.rules.spent_is_never_bound => {
                    self.claim(state, payer);
                    Self::answer(state, payer);
                }
                // The step that confirms it finds the units of its lines.
                Payer::Expired if units && payer == CART => {
                    self.pay(state, payer, read, Payer::Confirmed);
                }
                Payer::Expired if units => {
                    if state.payers[payer] == Payer::Expired {
                        state.payers[payer] = Payer::Held;
                    }
                    Self::read_again(state, payer);
                }
                Payer::Expired => self.pay(state, payer, read, Payer::RefundDue),
                Payer::Cancelled => state.reports[payer] = Report::Refused,
                Payer::Confirmed | Payer::RefundDue | Payer::Refunded => {
                    Self::answer(state, payer);
                }
            },
            Report::Bound { to } => {
                state.payers[payer] = to;
                Self::answer(state, payer);
            }
            Report::Refused => {
                state.reports[payer] = match state.is_returned() || !self.rules.refused_is_noted {
                    true => Report::Answering,
                    false => Report::Noting,
                }
            }
            Report::Noting => {
                if state.entries[payer] == Entry::None {
                    state.entries[payer] = Entry::Noted;
                }
                state.reports[payer] = Report::Answering;
            }
            Report::Answering => {
                if state.is_returned() {
                    self.claim(state, payer);
                }
                Self::answer(state, payer);
            }
        }
    }

    fn read_again(state: &mut State, payer: usize) {
        state.reports[payer] = Report::Read {
            right_total: true,
            payer: state.payers[payer],
        };
    }

    /// The step that takes the payment. A step that has lost a race leaves the payment bound.
    fn pay(&self, state: &mut State, payer: usize, read: Payer, to: Payer) {
        if !self.bind(state, payer) {
            state.reports[payer] = match state.is_returned() {
                true => Report::Answering,
                false => Report::Refused,
            };
        } else if state.payers[payer] != read {
            Self::read_again(state, payer);
        } else if self.rules.binds_with_the_step {
            state.payers[payer] = to;
            Self::answer(state, payer);
        } else {
            state.reports[payer] = Report::Bound { to };
        }
    }

    fn report_return(&self, state: &mut State, named: Option<usize>) {
        let is_noted = state.entries.iter().any(|entry| *entry != Entry::None);
        if is_noted && state.bound_to().is_none() && !self.rules.noted_payment_is_spent {
            state.returned = true;
            return;
        }
        let payer = state.known_payer().or(named);
        if payer.is_none() && !self.rules.first_return_is_kept {
            state.returned = true;
            return;
        }
        state.spend(payer);
        if payer.is_some() && state.failure == Failure::Unclaimed {
            state.failure = Failure::Known;
        }
        state.refunding = payer.filter(|payer| state.payers[*payer].has_money());
        if state.refunding.is_none() || !self.rules.refunds_before_answer {
            state.returned = true;
        }
    }

    fn done(&self, state: &mut State, payer: usize) {
        let is_looked_at = |of: usize| match of == payer {
            true => self.rules.done_looks_again,
            false => self.rules.done_spares_another,
        };
        let has_paid = (0..PAYERS).any(|of| state.has_paid(of) && is_looked_at(of));
        if state.is_returned() || has_paid {
            return;
        }
        state.entries[payer] = Entry::Done;
        if self.rules.done_spends {
            state.spend(Some(payer));
        }
        if state.failure != Failure::None {
            state.failure = Failure::Done;
        }
        (state.returned, state.with_buyer) = (true, true);
    }

    fn admin_refund(&self, state: &mut State, payer: usize) {
        state.payers[payer] = Payer::Refunded;
        if self.rules.refund_spends {
            state.spend(Some(payer));
        }
        if state.failure != Failure::None {
            state.failure = Failure::Done;
        }
        (state.returned, state.with_buyer) = (true, true);
    }

    /// Takes one step.
    fn step(&self, state: &mut State, step: Step) {
        match step {
            Step::Expire { payer } => state.payers[payer] = Payer::Expired,
            Step::Cancel { payer } => state.payers[payer] = Payer::Cancelled,
            Step::Report { payer, right_total } => {
                state.reports[payer] = Report::Read {
                    right_total,
                    payer: state.payers[payer],
                };
            }
            Step::Continue { payer, units } => self.go_on(state, payer, units),
            Step::Return => (state.provider_returned, state.with_buyer) = (true, true),
            Step::ReportReturn { named } => self.report_return(state, named),
            Step::Refund => {
                if let Some(payer) = state.refunding.take() {
                    state.payers[payer] = Payer::Refunded;
                    state.returned = true;
                }
            }
            Step::Fail => {
                state.failure = match state.known_payer() {
                    Some(_) => Failure::Known,
                    None => Failure::Unclaimed,
                };
                state.with_buyer = false;
            }
            Step::Done { payer } => self.done(state, payer),
            Step::DoneFailure => {
                state.failure = Failure::Done;
                (state.returned, state.with_buyer) = (true, true);
            }
            Step::AdminRefund { payer } => self.admin_refund(state, payer),
        }
    }

    fn payer_steps(state: &State, payer: usize, steps: &mut Vec<Step>) {
        if state.payers[payer] == Payer::Held {
            steps.extend([Step::Expire { payer }, Step::Cancel { payer }]);
        }
        match state.reports[payer] {
            Report::Idle => {
                let totals = [true, false].into_iter();
                steps.extend(totals.map(|right_total| Step::Report { payer, right_total }));
            }
            Report::Read { .. } => {
                let units = [true, false].into_iter();
                steps.extend(units.map(|units| Step::Continue { payer, units }));
            }
            _ => steps.push(Step::Continue {
                payer,
                units: false,
            }),
        }
        if state.entries[payer] == Entry::Noted {
            steps.push(Step::Done { payer });
        }
        if state.payers[payer].has_money() {
            steps.push(Step::AdminRefund { payer });
        }
    }
}

impl Model for Payment {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::first()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        (0..PAYERS).for_each(|payer| Self::payer_steps(state, payer, steps));
        if !state.provider_returned {
            steps.push(Step::Return);
        } else if state.refunding.is_none() {
            let named = [None, Some(0), Some(1)].into_iter();
            steps.extend(named.map(|named| Step::ReportReturn { named }));
        }
        if state.refunding.is_some() {
            steps.push(Step::Refund);
        }
        if state.provider_returned && state.failure == Failure::None {
            steps.push(Step::Fail);
        }
        if state.failure_is_due() {
            steps.push(Step::DoneFailure);
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
