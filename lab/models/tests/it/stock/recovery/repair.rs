//! What can happen next.

use stateright::{Model, Property};

use super::{
    ledger::{Ledger, Order, Transfer},
    properties,
    rules::Rules,
    scripts,
    segment::{Effect, Id, ORDERS, Op, Token},
    state::{REPAIRERS, RepairPlan, Repairer, Stage, State},
};

/// The recovery under some rules, and how much of it is checked.
#[derive(Debug, Clone)]
pub struct Repairing {
    /// The rules that hold.
    pub rules: Rules,
    /// Orders, at most [`ORDERS`].
    pub orders: usize,
    /// Units of the segment.
    pub units: i8,
    /// Orders that the one buyer may have.
    pub limit: u8,
    /// A transfer to or from the segment.
    pub transfer: Transfer,
    /// Reconcilers, at most [`MENDERS`].
    pub repairers: usize,
    /// How often Redis may lose writes.
    pub failovers: u8,
    /// How often the segment may be halted.
    pub halts: u8,
    /// Whether processes hand what they take to their recorder, which records it from memory.
    pub direct: bool,
    /// Whether a halt drops what the segment has stored of orders and transfers.
    pub drops: bool,
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A buyer's request or its retry takes.
    Reservation { order: usize },
    /// The order is cancelled, expires or is refunded: in the ledger.
    Cancel { order: usize },
    /// A `release` that was sent is delivered, perhaps again.
    Release { order: usize },
    /// A `transfer_in` or `transfer_out` of a repairer is delivered, perhaps again.
    Transfer { repairer: usize },
    /// The recorder reads the row and what is behind its checkpoint, up to so many entries. What it
    /// had read before is lost: it crashed.
    RecorderReads { entries: usize },
    /// The recorder commits what it made of it.
    RecorderWrites,
    /// A recorder commits so many entries that it has in memory.
    RecordsDirectly { entries: usize },
    /// The process of that recorder starts again.
    Forgets,
    /// Redis loses all but so much of its history.
    Failover { kept: usize },
    /// A process finds that the segment does not exist, and opens it with all units.
    Open,
    /// A repairer gets the lock and claims the item in the ledger.
    Claim { repairer: usize },
    /// A repairer halts the segment: for the first time, or after whatever went wrong.
    Halt { repairer: usize },
    /// Its `halt_segment` is delivered again.
    HaltLate { repairer: usize },
    /// It reads the row and the outbox, and decides.
    Decide { repairer: usize },
    /// It restores answers and counts.
    Restore { repairer: usize },
    /// A `restore_orders` of an earlier round is delivered, perhaps again.
    RestoreLate { repairer: usize },
    /// It sets the counter.
    Adjust { repairer: usize },
    /// An `adjust` of an earlier round is delivered, perhaps again.
    AdjustLate { repairer: usize },
    /// It commits.
    Commit { repairer: usize },
}

impl Repairing {
    /// The entries behind the checkpoint, if the recorder may go on from there.
    pub fn behind_checkpoint(&self, state: &State) -> Option<Vec<Op>> {
        let checkpoint = state.ledger.checkpoint;
        let is_anchored =
            state.outbox().any(|op| op.id == checkpoint) || !self.rules.recorder_checks_the_anchor;
        is_anchored.then(|| state.outbox().filter(|op| op.id > checkpoint).collect())
    }

    fn recorder_reads(&self, state: &State, entries: usize) -> Option<Ledger> {
        let behind = self.behind_checkpoint(state)?;
        behind
            .get(..entries)
            .filter(|entries| !entries.is_empty())
            .and_then(|entries| state.ledger.recorded(self.rules, entries))
    }

    /// What one statement makes of the entries in memory that continue the checkpoint: nothing if
    /// one of them repeats an order, or is not covered.
    fn directly(&self, state: &State, entries: usize) -> Option<Ledger> {
        let continues = |previous: Id| {
            previous == state.ledger.checkpoint
                || !self.rules.direct_record_continues_the_checkpoint
        };
        let mut fresh = state.fresh.iter().copied();
        let (_, first) = fresh.find(|(previous, _)| continues(*previous))?;
        let mut list = vec![first];
        for (previous, op) in fresh {
            if list.last().is_none_or(|before| before.id != previous) {
                break;
            }
            list.push(op);
        }
        let list = list.get(..entries)?;
        let is_new = |op: &Op| matches!(op.effect, Effect::Taken(order) if state.ledger.orders[order] == Order::Unknown);
        let recorded = state.ledger.recorded(self.rules, list)?;
        let is_held = |op: &Op| matches!(op.effect, Effect::Taken(order) if recorded.orders[order] == Order::Held);
        list.iter()
            .all(|op| is_new(op) && is_held(op))
            .then_some(recorded)
    }

    fn decide(&self, state: &State, repairer: usize) -> Option<RepairPlan> {
        let may_go_on = state.ledger.fence == State::token(repairer);
        let last = state.segment().filter(|_| may_go_on)?.last;
        if self.rules.decides_on_its_own_halt
            && state.repairers[repairer].stage != Stage::Halted(last)
        {
            return None;
        }
        let ledger =
            state
                .ledger
                .repaired(self.rules, self.limit, state.outbox().map(|op| op.effect));
        Some(RepairPlan {
            ledger,
            last,
            is_current: true,
        })
    }

    fn commit(&self, state: &mut State, token: Token, decision: &RepairPlan) {
        let is_current = decision.is_current || !self.rules.commit_knows_the_version;
        let is_mine = state.ledger.fence == token;
        if is_current && is_mine {
            let fence = state.ledger.fence;
            let ledger = state.ledger.overwritten_with(&decision.ledger);
            state.change_ledger(Ledger { fence, ..ledger });
        }
    }

    fn may_release(&self, state: &State, order: usize) -> bool {
        state.ledger.orders[order] >= Order::Returning
    }

    fn transferred(&self, state: &State, repairer: usize) -> Option<Effect> {
        // A repairer that has claimed may have sent it, whatever the ledger has now.
        let sent =
            self.transfer != Transfer::None && state.repairers[repairer].stage != Stage::Waiting;
        sent.then(|| {
            scripts::transfer(
                state,
                self.transfer == Transfer::ToCome,
                State::token(repairer),
            )
        })
        .flatten()
    }

    fn buyers_steps(&self, state: &State, steps: &mut Vec<Step>) {
        for order in 0..self.orders {
            if scripts::reservation(self.limit, state, order).is_some() {
                steps.push(Step::Reservation { order });
            }
            if state.ledger.orders[order] == Order::Held {
                steps.push(Step::Cancel { order });
            }
            if self.may_release(state, order) && scripts::release(state, order).is_some() {
                steps.push(Step::Release { order });
            }
        }
    }

    fn recorders_steps(&self, state: &State, steps: &mut Vec<Step>) {
        let behind = self
            .behind_checkpoint(state)
            .map_or(0, |entries| entries.len());
        let read = [1, behind].into_iter().take(behind.min(2));
        let read = read.filter(|entries| self.recorder_reads(state, *entries).is_some());
        steps.extend(read.map(|entries| Step::RecorderReads { entries }));
        if state.recorder.is_some() {
            steps.push(Step::RecorderWrites);
        }
        let direct =
            (1..=state.fresh.len()).filter(|entries| self.directly(state, *entries).is_some());
        steps.extend(direct.map(|entries| Step::RecordsDirectly { entries }));
        if !state.fresh.is_empty() {
            steps.push(Step::Forgets);
        }
    }

    fn failures(&self, state: &State, steps: &mut Vec<Step>) {
        if state.failovers < self.failovers {
            steps.extend((0..state.history.len()).map(|kept| Step::Failover { kept }));
        }
        if state.history.is_empty() {
            steps.push(Step::Open);
        }
    }

    fn repairers_steps(&self, state: &State, repairer: usize, steps: &mut Vec<Step>) {
        let Repairer { stage, late } = state.repairers[repairer];
        let token = State::token(repairer);
        if stage == Stage::Waiting {
            if state.ledger.fence < token {
                steps.push(Step::Claim { repairer });
            }
            return;
        }
        if state.halts < self.halts && scripts::halt(self.rules, state, token, self.drops).is_some()
        {
            steps.push(Step::Halt { repairer });
            steps.push(Step::HaltLate { repairer });
        }
        if let Some(late) = late {
            if scripts::restore(self.rules, state, token, &late).is_some() {
                steps.push(Step::RestoreLate { repairer });
            }
            if scripts::adjust(self.rules, state, token, &late).is_some() {
                steps.push(Step::AdjustLate { repairer });
            }
        }
        match stage {
            Stage::Halted(_) if self.decide(state, repairer).is_some() => {
                steps.push(Step::Decide { repairer })
            }
            Stage::Decided(decision)
                if scripts::restore(self.rules, state, token, &decision).is_some() =>
            {
                steps.push(Step::Restore { repairer });
            }
            Stage::Restored(decision)
                if scripts::adjust(self.rules, state, token, &decision).is_some() =>
            {
                steps.push(Step::Adjust { repairer });
            }
            Stage::Adjusted(_) => steps.push(Step::Commit { repairer }),
            _ => {}
        }
    }

    fn repair(&self, state: &mut State, repairer: usize, step: Step) {
        let token = State::token(repairer);
        let Repairer { stage, late } = state.repairers[repairer];
        match (step, stage, late) {
            (Step::Decide { .. }, ..) => {
                state.repairers[repairer].stage =
                    self.decide(state, repairer).map_or(stage, Stage::Decided);
            }
            (Step::Restore { .. }, Stage::Decided(decision), _) => {
                self.write(state, scripts::restore(self.rules, state, token, &decision));
                state.repairers[repairer].stage = Stage::Restored(decision);
            }
            (Step::RestoreLate { .. }, _, Some(late)) => {
                self.write(state, scripts::restore(self.rules, state, token, &late));
            }
            (Step::Adjust { .. }, Stage::Restored(decision), _) => {
                let adjusted =
                    self.write(state, scripts::adjust(self.rules, state, token, &decision));
                let ledger = Ledger {
                    checkpoint: adjusted,
                    ..decision.ledger
                };
                state.repairers[repairer].stage =
                    Stage::Adjusted(RepairPlan { ledger, ..decision });
            }
            (Step::AdjustLate { .. }, _, Some(late)) => {
                self.write(state, scripts::adjust(self.rules, state, token, &late));
            }
            (Step::Commit { .. }, Stage::Adjusted(decision), _) => {
                self.commit(state, token, &decision);
                state.repairers[repairer].end_round(Stage::Done);
            }
            _ => {}
        }
    }

    fn halt(&self, state: &mut State, repairer: usize) -> Id {
        state.halts += 1;
        self.write(
            state,
            scripts::halt(self.rules, state, State::token(repairer), self.drops),
        )
    }

    fn write(&self, state: &mut State, effect: Option<Effect>) -> Id {
        effect.map_or(0, |effect| state.write(effect))
    }

    /// Takes one step, without bringing the state into its shortest form.
    pub fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Reservation { order } => {
                let previous = state.segment().map_or(0, |segment| segment.last);
                let id = self.write(state, scripts::reservation(self.limit, state, order));
                if self.direct {
                    let effect = Effect::Taken(order);
                    state.fresh.push((previous, Op { id, effect }));
                }
            }
            Step::RecordsDirectly { entries } => {
                if let Some(ledger) = self.directly(state, entries) {
                    state.change_ledger(ledger);
                }
            }
            Step::Forgets => state.fresh.clear(),
            Step::Cancel { order } => {
                let mut ledger = state.ledger;
                ledger.orders[order] = Order::Returning;
                state.change_ledger(ledger);
            }
            Step::Release { order } => _ = self.write(state, scripts::release(state, order)),
            Step::Transfer { repairer } => _ = self.write(state, self.transferred(state, repairer)),
            Step::RecorderReads { entries } => state.recorder = self.recorder_reads(state, entries),
            Step::RecorderWrites => {
                if let Some(ledger) = state.recorder {
                    state.change_ledger(Ledger {
                        fence: state.ledger.fence,
                        ..ledger
                    });
                }
            }
            Step::Failover { kept } => {
                state.history.truncate(kept);
                state.failovers += 1;
            }
            Step::Open => _ = state.write(Effect::Opened { units: self.units }),
            Step::Claim { repairer } => {
                state.ledger.fence = State::token(repairer);
                state.repairers[repairer].stage = Stage::Claimed;
            }
            Step::Halt { repairer } => {
                let entry = self.halt(state, repairer);
                state.repairers[repairer].end_round(Stage::Halted(entry));
            }
            Step::HaltLate { repairer } => _ = self.halt(state, repairer),
            Step::Decide { repairer }
            | Step::Restore { repairer }
            | Step::RestoreLate { repairer }
            | Step::Adjust { repairer }
            | Step::AdjustLate { repairer }
            | Step::Commit { repairer } => self.repair(state, repairer, step),
        }
    }
}

impl Model for Repairing {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        assert!(self.repairers <= REPAIRERS && self.orders <= ORDERS);
        vec![State::initial(Ledger {
            available: self.units,
            transfer: self.transfer,
            ..Ledger::default()
        })]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.buyers_steps(state, steps);
        self.recorders_steps(state, steps);
        self.failures(state, steps);
        for repairer in 0..self.repairers {
            self.repairers_steps(state, repairer, steps);
            if self.transferred(state, repairer).is_some() {
                steps.push(Step::Transfer { repairer });
            }
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        self.take(&mut next, step);
        Some(next.normalized()).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}
