//! What can happen next.

use stateright::{Model, Property};

use super::{
    properties,
    state::{Effect, Fresh, Id, Ledger, Mark, Order, Read, Recorder, State},
};

rules! {
    /// The entry before a fresh one is known by its nonce, and not by its position alone.
    nonce,
    /// A list of fresh entries is recorded only as far as each names the one before it.
    gap,
    /// Its first entry must name the checkpoint.
    continues_the_checkpoint,
    /// The row changes only if its checkpoint is still the one that the recorder remembers.
    compare_and_set,
    /// Whether an order was off home is read when the entries are recorded, and not remembered.
    terms,
    /// A claim records nothing if the entry at the checkpoint is gone: also one that was recorded
    /// from memory, and that a failover had lost before.
    anchor,
    /// The entry at the checkpoint is not trimmed.
    anchor_stays,
}

/// Recorders under some rules, and how much of them is checked.
#[derive(Debug, Clone)]
pub struct Recorders {
    pub rules: Rules,
    /// Orders of one buyer, of a unit each.
    pub orders: usize,
    pub units: i8,
    /// Units that the buyer may have.
    pub limit: usize,
    pub recorders: usize,
    pub failovers: u8,
    /// Whether home lets orders go, and another segment takes them.
    pub spillover: bool,
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `reserve_home`, sent by the process of this recorder. The reply may be lost.
    Take {
        order: usize,
        recorder: usize,
        reply: bool,
    },
    /// Home declines the order.
    LetGo { order: usize },
    /// Another segment has taken the order, and a recorder records it there.
    RecordOffHome { order: usize },
    /// Redis loses all but so much of its history.
    Failover { kept: usize },
    /// The recorder records so many fresh entries.
    Direct { recorder: usize, entries: usize },
    /// The recorder claims the row and reads the outbox from the checkpoint on.
    Read { recorder: usize },
    /// It commits what it has read.
    Commit { recorder: usize },
    /// The trim that follows a commit arrives.
    Trim { recorder: usize },
    /// The process of the recorder starts again.
    Crash { recorder: usize },
    /// A reconciler repairs the segment: `recovery.rs` shows its steps.
    Repair,
}

impl Recorders {
    /// The fresh entries that continue what the recorder remembers.
    fn continuing(&self, recorder: &Recorder) -> Vec<Fresh> {
        let Some((row, _)) = recorder.row else {
            return Vec::new();
        };
        let first = recorder.fresh.iter().position(|fresh| {
            self.follows(row, fresh) || !self.rules.continues_the_checkpoint && fresh.mark.0 > row.0
        });
        let mut before = None;
        let list = recorder.fresh.iter().skip(first.unwrap_or(usize::MAX));
        list.take_while(|fresh| {
            let follows = before.is_none_or(|before| self.follows(before, fresh));
            before = Some(fresh.mark);
            follows || !self.rules.gap
        })
        .copied()
        .collect()
    }

    fn follows(&self, mark: Mark, fresh: &Fresh) -> bool {
        fresh.previous == mark || !self.rules.nonce && fresh.previous.0 == mark.0
    }

    /// What one statement makes of them: nothing if it has to be decided in a claim.
    fn directly(&self, state: &State, recorder: &Recorder, fresh: &[Fresh]) -> Option<Ledger> {
        let ((row, assumed), last) = (recorder.row?, fresh.last()?);
        if self.rules.compare_and_set && state.ledger.checkpoint != row {
            return None;
        }
        let had_spillover = if self.rules.terms {
            state.ledger.had_spillover
        } else {
            assumed
        };
        if had_spillover {
            return None;
        }
        let mut ledger = state.ledger.clone();
        for Fresh { order, .. } in fresh {
            // The primary key, and the row's own check.
            if ledger.orders[*order] != Order::Unknown || ledger.available == 0 {
                return None;
            }
            ledger.hold(*order);
        }
        ledger.checkpoint = last.mark;
        Some(ledger)
    }

    fn direct(&self, state: &mut State, recorder: usize, entries: usize) {
        let memory = &state.recorders[recorder];
        let fresh = self.continuing(memory);
        let Some(ledger) = self.directly(state, memory, &fresh[..entries.min(fresh.len())]) else {
            return;
        };
        state.recorded_directly = true;
        state.recorded_a_lost_one |= !state.has(ledger.checkpoint);
        self.committed(state, recorder, ledger);
    }

    /// Row and orders are written, and the recorder remembers them.
    fn committed(&self, state: &mut State, recorder: usize, ledger: Ledger) {
        let mark = ledger.checkpoint;
        let memory = &mut state.recorders[recorder];
        memory.row = Some((mark, ledger.had_spillover));
        memory.trim = Some(mark);
        if let Some(place) = memory.fresh.iter().position(|fresh| fresh.mark == mark) {
            memory.fresh.drain(..=place);
        }
        state.ledger = ledger;
    }

    fn may_read(&self, state: &State) -> bool {
        let is_anchored = state.has(state.ledger.checkpoint) || !self.rules.anchor;
        is_anchored && !state.behind_checkpoint().is_empty()
    }

    /// A claim decides every order: by the limit too, once an order of the buyer may be off home.
    fn commit(&self, state: &mut State, recorder: usize) {
        let Some(Read {
            checkpoint,
            entries,
        }) = state.recorders[recorder].read.take()
        else {
            return;
        };
        if state.ledger.checkpoint != checkpoint {
            return;
        }
        let mut ledger = state.ledger.clone();
        for op in entries {
            let limit = if ledger.had_spillover {
                self.limit
            } else {
                usize::MAX
            };
            decide(&mut ledger, op.effect, limit);
            ledger.checkpoint = op.mark;
        }
        self.committed(state, recorder, ledger);
    }

    fn repair(&self, state: &mut State) {
        let mut ledger = state.ledger.clone();
        let outbox: Vec<_> = state.outbox().collect();
        for op in outbox {
            decide(&mut ledger, op.effect, self.limit);
        }
        let held = ledger.held_here();
        ledger.checkpoint = state.append(Effect::Set { held });
        state.ledger = ledger;
        state.repairs += 1;
    }

    fn takes(&self, state: &State, steps: &mut Vec<Step>) {
        let counted = state.counted();
        if counted.count_ones() as usize >= self.limit {
            return;
        }
        let known = |order: usize| {
            counted & 1 << order != 0 || state.ledger.orders[order] == Order::Rejected
        };
        for order in (0..self.orders).filter(|order| !known(*order)) {
            if state.taken().count_ones() < self.units as u32 {
                for recorder in 0..self.recorders {
                    steps.extend([true, false].map(|reply| Step::Take {
                        order,
                        recorder,
                        reply,
                    }));
                }
            }
            if self.spillover {
                steps.push(Step::LetGo { order });
            }
        }
    }

    fn recorders_steps(&self, state: &State, recorder: usize, steps: &mut Vec<Step>) {
        let memory = &state.recorders[recorder];
        let most = self.continuing(memory).len();
        steps.extend((1..=most).map(|entries| Step::Direct { recorder, entries }));
        if memory.read.is_some() {
            steps.push(Step::Commit { recorder });
        } else if self.may_read(state) {
            steps.push(Step::Read { recorder });
        }
        // A trim is late, and the server that gets it has the entry that it names: a promoted
        // server numbers by its clock.
        if memory.trim.is_some_and(|trim| state.has(trim)) {
            steps.push(Step::Trim { recorder });
        }
        if *memory != Recorder::default() {
            steps.push(Step::Crash { recorder });
        }
    }

    fn apply(&self, state: &mut State, step: Step) {
        match step {
            Step::Take {
                order,
                recorder,
                reply,
            } => {
                let previous = state.last();
                let mark = state.append(Effect::Took(order));
                let fresh = Fresh {
                    previous,
                    mark,
                    order,
                };
                let memory = &mut state.recorders[recorder];
                memory.fresh.extend(reply.then_some(fresh));
            }
            Step::LetGo { order } => state.let_go(order),
            Step::RecordOffHome { order } => {
                let holds = state.ledger.held() < self.limit;
                state.ledger.had_spillover = true;
                state.ledger.orders[order] = if holds {
                    Order::HeldOffHome
                } else {
                    Order::Rejected
                };
            }
            Step::Failover { kept } => {
                state.history.truncate(kept);
                // The promoted server may not have had the trims either.
                state.first = 0;
                state.failovers += 1;
            }
            Step::Direct { recorder, entries } => self.direct(state, recorder, entries),
            Step::Read { recorder } => {
                let (checkpoint, entries) = (state.ledger.checkpoint, state.behind_checkpoint());
                let read = Read {
                    checkpoint,
                    entries,
                };
                state.recorders[recorder].read = Some(read);
            }
            Step::Commit { recorder } => self.commit(state, recorder),
            Step::Trim { recorder } => {
                if let Some((id, _)) = state.recorders[recorder].trim.take() {
                    let kept = id + Id::from(!self.rules.anchor_stays);
                    state.first = state.first.max(kept);
                }
            }
            Step::Crash { recorder } => state.recorders[recorder] = Recorder::default(),
            Step::Repair => self.repair(state),
        }
    }

    /// A recorder and a repairer that nothing disturbs.
    pub fn settle(&self, state: &mut State) {
        if !state.has(state.ledger.checkpoint) {
            self.repair(state);
        }
        self.apply(state, Step::Read { recorder: 0 });
        self.commit(state, 0);
    }
}

/// An order that the ledger has changes nothing.
fn decide(ledger: &mut Ledger, effect: Effect, limit: usize) {
    let Effect::Took(order) = effect else { return };
    if ledger.orders[order] != Order::Unknown {
        return;
    }
    if ledger.available > 0 && ledger.held() < limit {
        ledger.hold(order);
    } else {
        ledger.orders[order] = Order::Rejected;
    }
}

impl Model for Recorders {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial(self.units, self.orders, self.recorders)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.takes(state, steps);
        for recorder in 0..self.recorders {
            self.recorders_steps(state, recorder, steps);
        }
        let off_home = (0..self.orders).filter(|order| {
            state.let_go & 1 << order != 0 && state.ledger.orders[*order] == Order::Unknown
        });
        steps.extend(off_home.map(|order| Step::RecordOffHome { order }));
        if state.failovers < self.failovers {
            steps.extend((1..state.history.len()).map(|kept| Step::Failover { kept }));
        }
        if state.repairs < self.failovers && !state.has(state.ledger.checkpoint) {
            steps.push(Step::Repair);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        self.apply(&mut next, step);
        Some(next).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}
