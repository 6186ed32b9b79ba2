//! What can happen next.

use stateright::{Model, Property};

use super::{
    properties,
    state::{Attempt, Decision, OLD_RING, Reconciler, SEGMENTS, State, TRIES, around},
};

rules! {
    /// Home refuses an attempt that goes by another ring.
    home_checks_the_ring,
    /// And so do the other segments.
    others_check_the_ring,
    /// A proof counts only if every segment that was read has the ring that the reader goes by.
    proof_checks_the_ring,
    /// A resharded segment has what the ledger and the outboxes know of orders.
    memory_is_restored,
    /// No segment is set before all are halted.
    all_are_halted_first,
    /// Two rings of as many segments differ.
    ring_has_a_token,
}

impl Rules {
    /// Segments are added, and that is all.
    pub const NONE: Self = Self {
        home_checks_the_ring: false,
        others_check_the_ring: false,
        proof_checks_the_ring: false,
        memory_is_restored: false,
        all_are_halted_first: false,
        ring_has_a_token: false,
    };

    fn is_same(&self, one: u8, other: u8) -> bool {
        one == other || (!self.ring_has_a_token && one != OLD_RING && other != OLD_RING)
    }
}

/// A resharding under some rules, and how much of it is checked.
#[derive(Debug, Clone)]
pub struct Resharding {
    pub rules: Rules,
    /// Units of the item.
    pub units: u8,
    /// Attempts of the order that run concurrently.
    pub attempts: usize,
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The order is requested, again perhaps, from a process that goes by this ring.
    Begin {
        attempt: usize,
        ring: u8,
    },
    /// The attempt's message arrives at the next segment of its ring.
    Ask {
        attempt: usize,
    },
    /// All have declined. It looks for a proof that no unit is free.
    Prove {
        attempt: usize,
    },
    /// It has home end the order as sold out.
    End {
        attempt: usize,
    },
    /// A process that goes by this ring refuses the order from its sold-out cache.
    Shed {
        ring: u8,
    },
    /// Another buyer takes a unit.
    TakeOther {
        segment: usize,
    },
    /// Another buyer releases one.
    ReleaseOther {
        segment: usize,
    },
    /// A unit is moved.
    Move {
        from: usize,
        to: usize,
    },
    /// The recorder records the order.
    Record {
        segment: usize,
    },
    /// A reconciler begins to reshard, because none has, or because the one before died.
    Claim,
    /// It halts a segment, which forgets what it has stored.
    Halt {
        segment: usize,
    },
    /// It stages the outboxes, and sets a segment to the new ring.
    Set {
        segment: usize,
    },
    Commit,
}

impl Resharding {
    fn attempt_steps(&self, state: &State, attempt: usize, steps: &mut Vec<Step>) {
        match state.attempts[attempt] {
            Attempt::Idle => {
                let learned = state.segments.iter().map(|segment| segment.ring);
                let mut rings: Vec<_> = learned.chain([OLD_RING]).collect();
                rings.sort_unstable();
                rings.dedup();
                steps.extend(rings.iter().map(|ring| Step::Begin {
                    attempt,
                    ring: *ring,
                }));
            }
            Attempt::Asks { ring, place } if place == around(ring).len() => {
                steps.push(Step::Prove { attempt });
            }
            Attempt::Asks { .. } => steps.push(Step::Ask { attempt }),
            Attempt::Ends { .. } => steps.push(Step::End { attempt }),
        }
    }

    fn other_steps(state: &State, steps: &mut Vec<Step>) {
        for (segment, there) in state.segments.iter().enumerate() {
            if there.halted {
                continue;
            }
            if there.available > 0 {
                steps.push(Step::TakeOther { segment });
                let ends = around(state.ring)
                    .iter()
                    .filter(|to| **to != segment && !state.segments[**to].halted);
                if around(state.ring).contains(&segment) {
                    steps.extend(ends.map(|to| Step::Move {
                        from: segment,
                        to: *to,
                    }));
                }
            }
            if state.others > 0 && around(state.ring).contains(&segment) {
                steps.push(Step::ReleaseOther { segment });
            }
            // An anchor that the ledger does not have stops the recorder.
            if there.unrecorded && there.ring == state.ring {
                steps.push(Step::Record { segment });
            }
        }
    }

    fn reconciler_steps(&self, state: &State, steps: &mut Vec<Step>) {
        let now = &state.reconciler;
        if now.is_done {
            return;
        }
        if now.token < TRIES {
            steps.push(Step::Claim);
        }
        if now.token == 0 {
            return;
        }
        let all_halted = now.halted.iter().all(|halted| *halted);
        for segment in 0..SEGMENTS {
            if !now.halted[segment] {
                steps.push(Step::Halt { segment });
            }
            let may_set = all_halted || !self.rules.all_are_halted_first;
            if may_set && now.halted[segment] && !now.set[segment] {
                steps.push(Step::Set { segment });
            }
        }
        if now.set.iter().all(|set| *set) {
            steps.push(Step::Commit);
        }
    }

    fn ask(&self, state: &mut State, attempt: usize, ring: u8, place: usize) {
        let number = around(ring)[place];
        let segment = &mut state.segments[number];
        let checks = if place == 0 {
            self.rules.home_checks_the_ring
        } else {
            self.rules.others_check_the_ring
        };
        if segment.halted || (checks && !self.rules.is_same(segment.ring, ring)) {
            state.was_refused = true;
            state.attempts[attempt] = Attempt::Idle;
            return;
        }
        let next = Attempt::Asks {
            ring,
            place: place + 1,
        };
        state.attempts[attempt] = match segment.decision {
            Some(Decision::Declined) => next,
            Some(_) => Attempt::Idle,
            None if segment.available > 0 => {
                segment.available -= 1;
                segment.decision = Some(Decision::Taken);
                segment.unrecorded = true;
                state.takes += 1;
                Attempt::Idle
            }
            None => {
                segment.decision = Some(Decision::Declined);
                next
            }
        };
    }

    /// Whether a process that goes by `ring` finds all of its segments empty. `Some(true)`:
    /// although a unit is free.
    fn proof(&self, state: &State, ring: u8) -> Option<bool> {
        let is_empty = around(ring).iter().all(|number| {
            let segment = &state.segments[*number];
            let is_known =
                !self.rules.proof_checks_the_ring || self.rules.is_same(segment.ring, ring);
            segment.available == 0 && !segment.halted && is_known
        });
        is_empty.then(|| state.free() > 0)
    }

    fn end(&self, state: &mut State, attempt: usize, ring: u8, falsely: bool) {
        let takes = state.takes;
        let home = &mut state.segments[around(ring)[0]];
        let checks = self.rules.home_checks_the_ring && self.rules.proof_checks_the_ring;
        let refuses = home.halted || (checks && !self.rules.is_same(home.ring, ring));
        if !refuses && home.decision == Some(Decision::Declined) {
            home.decision = Some(Decision::SoldOut);
            state.told_falsely |= falsely || takes > 0;
        }
        state.attempts[attempt] = Attempt::Idle;
    }

    /// The order's segment, by the ledger and the outboxes of the halted segments.
    fn stage(state: &State) -> Option<usize> {
        let halted = |number: &usize| state.reconciler.halted[*number];
        let unrecorded = |number: &usize| state.segments[*number].unrecorded;
        let mut staged = (0..SEGMENTS).filter(|number| halted(number) && unrecorded(number));
        state
            .ledger
            .or(state.reconciler.staged)
            .or_else(|| staged.next())
    }

    fn set(&self, state: &mut State, number: usize) {
        state.reconciler.staged = Self::stage(state);
        let ring = state.reconciler.token;
        let known = state.reconciler.staged;
        let segment = &mut state.segments[number];
        (segment.ring, segment.halted) = (ring, false);
        segment.decision = match known.filter(|_| self.rules.memory_is_restored) {
            Some(taker) if taker == number => Some(Decision::Taken),
            Some(_) if number == around(ring)[0] => Some(Decision::Elsewhere),
            _ => None,
        };
        state.reconciler.set[number] = true;
    }

    fn commit(state: &mut State) {
        state.ring = state.reconciler.token;
        if let Some(segment) = state.reconciler.staged {
            state.ledger = state.ledger.or(Some(segment));
            state.segments[segment].unrecorded = false;
        }
        state.reconciler.is_done = true;
    }

    /// Takes one step.
    pub fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Begin { attempt, ring } => {
                state.attempts[attempt] = Attempt::Asks { ring, place: 0 };
            }
            Step::Ask { attempt } => {
                if let Attempt::Asks { ring, place } = state.attempts[attempt] {
                    self.ask(state, attempt, ring, place);
                }
            }
            Step::Prove { attempt } => {
                if let Attempt::Asks { ring, .. } = state.attempts[attempt]
                    && let Some(falsely) = self.proof(state, ring)
                {
                    state.attempts[attempt] = Attempt::Ends { ring, falsely };
                }
            }
            Step::End { attempt } => {
                if let Attempt::Ends { ring, falsely } = state.attempts[attempt] {
                    self.end(state, attempt, ring, falsely);
                }
            }
            // A buyer who has units is never shed.
            Step::Shed { ring } => {
                state.told_falsely |= state.takes == 0 && self.proof(state, ring) == Some(true);
            }
            Step::TakeOther { segment } => {
                state.segments[segment].available -= 1;
                state.others += 1;
            }
            Step::ReleaseOther { segment } => {
                state.segments[segment].available += 1;
                state.others -= 1;
            }
            Step::Move { from, to } => {
                state.segments[from].available -= 1;
                state.segments[to].available += 1;
            }
            Step::Record { segment } => {
                state.ledger = state.ledger.or(Some(segment));
                state.segments[segment].unrecorded = false;
            }
            Step::Claim => {
                let token = state.reconciler.token + 1;
                state.reconciler = Reconciler {
                    token,
                    ..Reconciler::default()
                };
            }
            Step::Halt { segment } => {
                let there = &mut state.segments[segment];
                (there.halted, there.decision) = (true, None);
                state.reconciler.halted[segment] = true;
            }
            Step::Set { segment } => self.set(state, segment),
            Step::Commit => Self::commit(state),
        }
    }
}

impl Model for Resharding {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial(self.units, self.attempts)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        (0..self.attempts).for_each(|attempt| self.attempt_steps(state, attempt, steps));
        Self::other_steps(state, steps);
        self.reconciler_steps(state, steps);
        steps.extend((OLD_RING..=TRIES).map(|ring| Step::Shed { ring }));
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
