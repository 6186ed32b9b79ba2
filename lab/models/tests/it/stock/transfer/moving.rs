//! What can happen next.

use stateright::{Model, Property};

use super::{
    properties,
    state::{RECONCILERS, SEGMENTS, State, TRANSFERS, Transfer},
};

rules! {
    /// A segment remembers the transfers that went out and came in.
    transfers_are_remembered,
    /// Units are put in only when the ledger says that they went out, and as many as it says.
    in_waits_for_the_ledger,
}

/// Transfers under some rules, and how much of them is checked.
#[derive(Debug, Clone)]
pub struct Moving {
    /// The rules that hold.
    pub rules: Rules,
    /// Units of the item.
    pub units: i8,
    /// Units that a transfer asks for.
    pub asked: i8,
    /// Entries that the recorder may be behind by, at each segment.
    pub behind: usize,
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// An order takes a unit, or releases it (less than none).
    Take { segment: usize, units: i8 },
    /// The recorder records one entry.
    Record { segment: usize },
    /// A reconciler gets the lock and claims the item in the ledger.
    Claim { reconciler: usize },
    /// It plans a transfer in the ledger.
    Plan { reconciler: usize, transfer: usize },
    /// It sees a planned transfer and sends `transfer_out`.
    SendOut { reconciler: usize, transfer: usize },
    /// That is delivered, perhaps again.
    Out { reconciler: usize, transfer: usize },
    /// It sees units that went out and sends `transfer_in`.
    SendIn { reconciler: usize, transfer: usize },
    /// That is delivered, perhaps again.
    In { reconciler: usize, transfer: usize },
}

fn token(reconciler: usize) -> u8 {
    reconciler as u8 + 1
}

impl Moving {
    fn has_room(&self, state: &State, segment: usize) -> bool {
        state.segments[segment].outbox.len() < self.behind
    }

    fn segment_steps(&self, state: &State, segment: usize, steps: &mut Vec<Step>) {
        let there = &state.segments[segment];
        if self.has_room(state, segment) {
            let takes = [(1, there.available > 0), (-1, there.taken > 0)]
                .into_iter()
                .filter(|(_, can)| *can);
            steps.extend(takes.map(|(units, _)| Step::Take { segment, units }));
        }
        if !there.outbox.is_empty() {
            steps.push(Step::Record { segment });
        }
    }

    fn transfer_steps(
        &self,
        state: &State,
        reconciler: usize,
        transfer: usize,
        steps: &mut Vec<Step>,
    ) {
        let sent = state.sent[reconciler][transfer];
        match state.transfers[transfer] {
            Transfer::None if state.fence == token(reconciler) => steps.push(Step::Plan {
                reconciler,
                transfer,
            }),
            Transfer::Planned => steps.push(Step::SendOut {
                reconciler,
                transfer,
            }),
            _ => {}
        }
        if self.units_to_put_in(state, transfer).is_some() {
            steps.push(Step::SendIn {
                reconciler,
                transfer,
            });
        }
        if sent.out && self.has_room(state, transfer) {
            steps.push(Step::Out {
                reconciler,
                transfer,
            });
        }
        if sent.coming.is_some() && self.has_room(state, 1 - transfer) {
            steps.push(Step::In {
                reconciler,
                transfer,
            });
        }
    }

    fn units_to_put_in(&self, state: &State, transfer: usize) -> Option<i8> {
        match state.transfers[transfer] {
            Transfer::Out(units) => Some(units),
            // The weaker one goes by what it asked for.
            Transfer::Planned if !self.rules.in_waits_for_the_ledger => Some(self.asked),
            _ => None,
        }
    }

    /// Takes one step.
    pub fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Take { segment, units } => state.segments[segment].take(units),
            Step::Record { segment } => state.record(segment),
            Step::Claim { reconciler } => state.fence = token(reconciler),
            Step::Plan { transfer, .. } => state.transfers[transfer] = Transfer::Planned,
            Step::SendOut {
                reconciler,
                transfer,
            } => state.sent[reconciler][transfer].out = true,
            Step::Out {
                reconciler,
                transfer,
            } => state.transfer_out(self.rules, transfer, self.asked, token(reconciler)),
            Step::SendIn {
                reconciler,
                transfer,
            } => {
                state.sent[reconciler][transfer].coming = self.units_to_put_in(state, transfer);
            }
            Step::In {
                reconciler,
                transfer,
            } => {
                if let Some(units) = state.sent[reconciler][transfer].coming {
                    state.transfer_in(self.rules, transfer, units, token(reconciler));
                }
            }
        }
    }
}

impl Model for Moving {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial(self.units)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        (0..SEGMENTS).for_each(|segment| self.segment_steps(state, segment, steps));
        for reconciler in 0..RECONCILERS - 1 {
            if state.fence < token(reconciler) {
                steps.push(Step::Claim { reconciler });
            }
            // One that has never had the lock does nothing. One that had it and lost it may go on:
            // it is late.
            if state.fence >= token(reconciler) {
                (0..TRANSFERS)
                    .for_each(|transfer| self.transfer_steps(state, reconciler, transfer, steps));
            }
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        self.take(&mut next, step);
        Some(next).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
