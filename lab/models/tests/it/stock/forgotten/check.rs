//! What can happen next.

use stateright::{Model, Property};

use super::{
    properties,
    state::{Check, Door, Event, Found, State},
};

/// Time that an order may take.
const ORDER_TIMEOUT: u8 = 1;
/// How far a clock may be behind.
const CLOCK_ERROR: u8 = 1;
/// Enough for two checks, one after the other.
const TIME_MOST: u8 = 6;

rules! {
    /// The orders of the ledger are compared with home's decisions at all.
    orders_are_compared,
    /// The comparison waits until no order can be under way that home has declined before.
    waits_for_deadlines,
    /// It waits longer than the time that an order may take: clocks differ.
    margin_covers_the_clocks,
    /// It waits until the ledger has what the other segment has taken.
    waits_for_the_recorder,
    /// What that is, is read after the deadlines.
    tail_is_read_after_the_deadlines,
    /// The mark comes after the comparison.
    mark_comes_last,
    /// The mark is written only if home still has the history at which the check began.
    mark_names_the_history_that_was_checked,
    /// Each failover begins another history: the replication id. A run id comes back with its
    /// server.
    history_is_new_after_each_failover,
    /// A repair that drops home's decisions drops the mark.
    mark_goes_with_the_decisions,
    /// Home refuses a mark under a token that is not the highest.
    mark_is_fenced,
    /// The check begins again when the other segment has another history.
    begins_again_with_any_history,
    /// The door refuses a stranger by itself only if home is marked.
    door_asks_for_the_mark,
    /// The door has read the mark before it asks whether home knows the order.
    door_reads_the_mark_before,
    /// It reads the mark again afterwards.
    door_reads_the_mark_after,
    /// Both marks name the same history.
    door_compares_the_history,
    /// No repair came in between.
    door_compares_the_fence,
}

/// Home and another segment under some rules, and how much of them is checked.
#[derive(Debug, Clone)]
pub struct HomeCheck {
    /// The rules that hold.
    pub rules: Rules,
    /// Orders of buyers at this home.
    pub orders: usize,
    /// How often home's server fails.
    pub failovers: u8,
    /// How often home loses its decisions.
    pub losses: u8,
    /// How often the other segment's server fails.
    pub other_failovers: u8,
    /// Whether repeats come to a door that refuses by itself whom home does not know.
    pub door: bool,
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A request asks home, which declines, and sets out for the other segment.
    Ask {
        order: usize,
    },
    /// The other segment takes it.
    Take {
        order: usize,
    },
    /// The recorder records one order.
    Record,
    /// Home's server loses all but the first events, and another one takes its place.
    Failover {
        remaining: usize,
    },
    /// The other segment loses all but the first orders. Those of the ledger are restored.
    OtherFailover {
        remaining: usize,
    },
    /// Home loses its decisions. A repair under the next token restores those of the ledger.
    LoseDecisions,
    Tick,
    /// A reconciler sees a mark of another history.
    Begin,
    /// It reads how much the other segment has.
    ReadTail,
    /// It compares the orders of the ledger with home, and repairs home if one is missing.
    Compare,
    /// It sets the mark.
    Mark,
    /// It crashes.
    Crash,
    /// A repeat comes to the door, which reads home's mark.
    Approach {
        order: usize,
    },
    /// The door asks whether home knows the order.
    Look,
    /// The door reads the mark again. It refuses the order, or looks for it elsewhere.
    Decide,
}

impl HomeCheck {
    fn orders(&self, state: &State, steps: &mut Vec<Step>) {
        for order in 0..self.orders {
            steps.push(Step::Ask { order });
            // The other segment's clock may be behind.
            let is_in_time =
                state.sent[order].is_some_and(|deadline| state.now <= deadline + CLOCK_ERROR);
            if is_in_time && !state.other.contains(&order) {
                steps.push(Step::Take { order });
            }
        }
        if state.recorded < state.other.len() {
            steps.push(Step::Record);
        }
    }

    fn faults(&self, state: &State, steps: &mut Vec<Step>) {
        if state.failovers < self.failovers {
            // An opening that is lost is noticed by the anchor.
            steps.extend((1..=state.home.len()).map(|remaining| Step::Failover { remaining }));
        }
        if state.other_failovers < self.other_failovers {
            let remaining = state.recorded..=state.other.len();
            steps.extend(remaining.map(|remaining| Step::OtherFailover { remaining }));
        }
        if state.losses < self.losses {
            steps.push(Step::LoseDecisions);
        }
        if state.check.is_some() {
            steps.push(Step::Crash);
        }
    }

    fn door(&self, state: &State, steps: &mut Vec<Step>) {
        match &state.door {
            Some(Door { found: None, .. }) => steps.push(Step::Look),
            Some(Door { found: Some(_), .. }) => steps.push(Step::Decide),
            None if self.door => {
                steps.extend((0..self.orders).map(|order| Step::Approach { order }));
            }
            None => {}
        }
    }

    /// Whether the door may say that home has forgotten nothing.
    fn is_proven(&self, state: &State, door: &Door) -> bool {
        let rules = &self.rules;
        let after = state.checked();
        if !rules.door_asks_for_the_mark {
            true
        } else if !rules.door_reads_the_mark_before {
            after.is_some()
        } else if !rules.door_reads_the_mark_after {
            door.before.is_some()
        } else {
            door.before.zip(after).is_some_and(|(before, after)| {
                (before.0 == after.0 || !rules.door_compares_the_history)
                    && (before.1 == after.1 || !rules.door_compares_the_fence)
            })
        }
    }

    /// Without a proof the door reads the ledger and asks the other segment. So it refuses no order
    /// that one of them has.
    fn decide(&self, state: &mut State) {
        let Some(door) = state.door.take() else {
            return;
        };
        let is_in_ledger = door.found == Some(Found::InTheLedgerOnly);
        state.wrongly_refused |= is_in_ledger && self.is_proven(state, &door);
    }

    /// What the reconciler may do next: one step, if it does not have to wait.
    pub fn reconciler_steps(&self, state: &State, steps: &mut Vec<Step>) {
        let Some(check) = state.check else {
            steps.extend((!state.is_marked()).then_some(Step::Begin));
            return;
        };
        if self.is_outdated(state, &check) {
            steps.push(if check.complete {
                Step::Mark
            } else {
                Step::Crash
            });
            return;
        }
        let Some(tail) = check.tail else {
            steps.extend(self.may_read_tail(state, &check).then_some(Step::ReadTail));
            return;
        };
        let mark_first = !self.rules.mark_comes_last && !state.is_marked();
        if check.complete || mark_first {
            steps.push(Step::Mark);
        } else if self.may_compare(state, &check, tail) {
            steps.push(Step::Compare);
        }
    }

    /// It began under another history. Whether it can still write the mark is up to home.
    fn is_outdated(&self, state: &State, check: &Check) -> bool {
        let is_other = check.other_history != state.other_history;
        check.history != state.history
            || check.token != state.fence
            || (is_other && self.rules.begins_again_with_any_history)
    }

    fn deadlines_have_passed(&self, state: &State, check: &Check) -> bool {
        let margin = if self.rules.margin_covers_the_clocks {
            CLOCK_ERROR
        } else {
            0
        };
        !self.rules.waits_for_deadlines || state.now > check.since + ORDER_TIMEOUT + margin
    }

    fn may_read_tail(&self, state: &State, check: &Check) -> bool {
        !self.rules.tail_is_read_after_the_deadlines || self.deadlines_have_passed(state, check)
    }

    fn may_compare(&self, state: &State, check: &Check, tail: usize) -> bool {
        let is_recorded = !self.rules.waits_for_the_recorder || state.recorded >= tail;
        is_recorded && self.deadlines_have_passed(state, check)
    }

    /// Takes a step.
    pub fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Ask { order } => {
                if !state.home_knows(order) {
                    state.home.push(Event::Declined(order));
                }
                if !state.home.contains(&Event::Restored(order)) {
                    state.sent[order] = Some(state.now + ORDER_TIMEOUT);
                }
            }
            Step::Take { order } => state.other.push(order),
            Step::Record => state.recorded += 1,
            Step::Failover { remaining } => {
                state.home.truncate(remaining);
                state.failovers += 1;
                state.history = if self.rules.history_is_new_after_each_failover {
                    state.failovers
                } else {
                    state.failovers % 2
                };
            }
            Step::OtherFailover { remaining } => {
                state.other.truncate(remaining);
                state.other_failovers += 1;
                state.other_history = state.other_failovers;
            }
            Step::LoseDecisions => self.lose_decisions(state),
            Step::Tick => state.now += 1,
            Step::Begin => {
                state.check = Some(Check {
                    history: state.history,
                    other_history: state.other_history,
                    token: state.fence,
                    since: state.now,
                    tail: None,
                    complete: false,
                });
            }
            Step::ReadTail => {
                let read = state.other.len();
                state
                    .check
                    .iter_mut()
                    .for_each(|check| check.tail = Some(read));
            }
            Step::Compare => self.compare(state),
            Step::Mark => self.mark(state),
            Step::Crash => state.check = None,
            Step::Approach { order } => {
                state.door = Some(Door {
                    order,
                    before: state.checked(),
                    found: None,
                });
            }
            Step::Look => {
                let found = |door: &Door| match state.ledger().contains(&door.order) {
                    true => Found::InTheLedgerOnly,
                    false => Found::Nowhere,
                };
                // An order that home knows is answered there.
                let stranger = state.door.filter(|door| !state.home_knows(door.order));
                state.door = stranger.map(|door| Door {
                    found: Some(found(&door)),
                    ..door
                });
            }
            Step::Decide => self.decide(state),
        }
    }

    fn lose_decisions(&self, state: &mut State) {
        let mark = state.mark();
        state.home.clear();
        if !self.rules.mark_goes_with_the_decisions {
            state.home.extend(mark.map(Event::Marked));
        }
        let recorded = state.ledger().to_vec();
        state.restore(&recorded);
        state.fence += 1;
        state.losses += 1;
    }

    /// After a repair the check begins again.
    fn compare(&self, state: &mut State) {
        let forgotten = state.forgotten();
        if !forgotten.is_empty() && self.rules.orders_are_compared {
            state.restore(&forgotten);
            state.check = None;
        } else if state.is_marked() {
            state.check = None;
        } else {
            state
                .check
                .iter_mut()
                .for_each(|check| check.complete = true);
        }
    }

    fn mark(&self, state: &mut State) {
        let Some(check) = state.check else { return };
        let is_same =
            check.history == state.history || !self.rules.mark_names_the_history_that_was_checked;
        let is_highest = check.token == state.fence || !self.rules.mark_is_fenced;
        if is_same && is_highest {
            state.home.push(Event::Marked(state.history));
        }
        // With the mark before the comparison, the comparison is still to come.
        if check.complete || !(is_same && is_highest) {
            state.check = None;
        }
    }
}

impl Model for HomeCheck {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial(self.orders)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.orders(state, steps);
        self.faults(state, steps);
        self.reconciler_steps(state, steps);
        self.door(state, steps);
        if state.now < TIME_MOST {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        self.take(&mut next, step);
        Some(next).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}
