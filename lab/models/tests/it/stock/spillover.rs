//! What can happen next: every message that was ever sent may be delivered, the clocks may move on,
//! stock may come and go.

use stateright::{Model, Property};

use super::{
    properties,
    rules::{PATIENCE, Rules, Time},
    scripts::{self, Reply},
    state::{
        ATTEMPTS, Attempt, Decision, End, Forgetting, HOME, ORDERS, Order, Return, ReturnStage,
        SEGMENTS, Stage, State,
    },
};

/// The spillover under some rules, and how much of it is checked.
#[derive(Debug, Clone)]
pub struct Spillover {
    /// The rules that hold.
    pub rules: Rules,
    /// Segments in the ring, at most [`SEGMENTS`].
    pub ring: usize,
    /// Orders of the one buyer, at most [`ORDERS`].
    pub orders: usize,
    /// Attempts of an order that are under way at once. Later ones start when earlier ones are
    /// over, without end.
    pub attempts: usize,
    /// Units of the item.
    pub units: i8,
    /// Orders that the buyer may have.
    pub limit: u8,
    /// Whether orders are cancelled and rejected.
    pub returns: bool,
    /// Rounds that may follow the first one.
    pub rounds: u8,
    /// Whether an attempt may give its order up, and a later one reopens it.
    pub gives_up: bool,
    /// Whether a failover may lose the last round that home has declined.
    pub loses: bool,
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The clocks move on.
    Tick,
    /// A unit comes to a segment: cancelled, expired, transferred in, added.
    Arrive { segment: usize },
    /// A unit leaves a segment: another order's, or transferred out.
    Leave { segment: usize },
    /// A request, a retry or the spillover worker sets out.
    Start { order: usize, deadline: Time },
    /// An ask that was sent is delivered, perhaps again.
    Reservation {
        order: usize,
        attempt: Attempt,
        segment: usize,
    },
    /// An ask of an earlier round of this attempt is delivered, perhaps again.
    Earlier {
        order: usize,
        attempt: Attempt,
        segment: usize,
        round: u8,
    },
    /// Not every segment was empty a moment ago: the attempt begins the next round.
    NextRound { order: usize, attempt: Attempt },
    /// An outcome that was sent is delivered, perhaps again: in an earlier round, "sold out".
    Finish {
        order: usize,
        attempt: Attempt,
        end: End,
        round: u8,
    },
    /// An attempt that home has told "given up" reopens the order.
    Reopen { order: usize, attempt: Attempt },
    /// A failover loses the last round that home has declined.
    LoseRound { order: usize },
    /// A worker finds the spillover due and sends `forget_declined` to the other segments.
    FindDue { order: usize },
    /// A `forget_declined` that was sent is delivered, perhaps again.
    ForgetDeclined { order: usize, segment: usize },
    /// A `forget_spillover` that was sent is delivered, perhaps again.
    ForgetSpillover { order: usize },
    /// The ledger says that the order's unit goes back.
    Cancel { order: usize },
    /// The segment is repaired, and the ledger could not cover the order.
    Reject { order: usize },
    /// A `release_count` that was sent is delivered, perhaps again.
    ReleaseCount { order: usize },
    /// A `release` that was sent is delivered, perhaps again.
    Release { order: usize },
    /// The ledger records the return and lists it no longer.
    RecordReturn { order: usize },
    /// A `declined` record expires (only in a weakened variant).
    Expire { order: usize, segment: usize },
}

impl Spillover {
    fn stock_steps(&self, state: &State, steps: &mut Vec<Step>) {
        for segment in 0..self.ring {
            if state.outside > 0 {
                steps.push(Step::Arrive { segment });
            }
            if state.available[segment] > 0 {
                steps.push(Step::Leave { segment });
            }
        }
    }

    fn attempt_steps(&self, state: &State, order: usize, steps: &mut Vec<Step>) {
        let under_way = state.orders[order].attempts.iter().flatten();
        if under_way.clone().count() < self.attempts {
            steps.extend(
                (state.now..=state.now + PATIENCE).map(|deadline| Step::Start { order, deadline }),
            );
        }
        for &attempt in under_way {
            if self.rules.obeys_reservation(state.now, attempt.deadline) {
                steps.extend((0..attempt.stage.asked(self.ring)).map(|segment| {
                    Step::Reservation {
                        order,
                        attempt,
                        segment,
                    }
                }));
                let earlier = (0..attempt.round).flat_map(|round| {
                    let asked = if round < attempt.since_round {
                        HOME + 1
                    } else {
                        self.ring
                    };
                    (0..asked).map(move |segment| Step::Earlier {
                        order,
                        attempt,
                        segment,
                        round,
                    })
                });
                steps.extend(earlier);
                if self.may_reopen(&state.orders[order]) {
                    steps.push(Step::Reopen { order, attempt });
                }
            }
            self.finish_steps(order, attempt, steps);
            if attempt.round < self.rounds && self.may_begin_round(attempt.stage) {
                steps.push(Step::NextRound { order, attempt });
            }
        }
    }

    /// In earlier rounds every segment had declined.
    fn finish_steps(&self, order: usize, attempt: Attempt, steps: &mut Vec<Step>) {
        let mut finish = |end: End, round: u8| {
            steps.push(Step::Finish {
                order,
                attempt,
                end,
                round,
            });
        };
        let declined = attempt.round + u8::from(attempt.stage == Stage::AllDeclined);
        for round in attempt.since_round..declined {
            finish(End::SoldOut, round);
            if self.gives_up {
                finish(End::GivenUp, round);
            }
        }
        if attempt.stage.finishes() && attempt.stage != Stage::AllDeclined {
            finish(End::Elsewhere, attempt.round);
        }
    }

    fn may_reopen(&self, order: &Order) -> bool {
        order.home() == Decision::GivenUp && order.records[HOME].round < self.rounds
    }

    /// Only while no segment takes in the lost round. What follows if one does is the subject of
    /// `recovery.rs`.
    fn may_lose_round(&self, order: &Order) -> bool {
        let lost = order.records[HOME].round;
        self.loses
            && lost > 0
            && order.records[..self.ring]
                .iter()
                .all(|record| record.decision == Decision::Declined && record.round >= lost)
    }

    fn may_begin_round(&self, stage: Stage) -> bool {
        match stage {
            Stage::AllDeclined => true,
            Stage::Asking(segment) => segment > 0 && !self.rules.round_follows_declines_of_all,
            Stage::TookAt(_) => false,
        }
    }

    fn forget_steps(&self, state: &State, order: usize, steps: &mut Vec<Step>) {
        let Order {
            forgetting,
            forgetting_home,
            ..
        } = &state.orders[order];
        if scripts::due_spillover(self.rules, state, order).is_some() {
            steps.push(Step::FindDue { order });
        }
        for segment in HOME + 1..self.ring {
            if forgetting.is_some() {
                steps.push(Step::ForgetDeclined { order, segment });
            }
            if scripts::may_expire(self.rules, state, order, segment) {
                steps.push(Step::Expire { order, segment });
            }
        }
        if forgetting_home.is_some() {
            steps.push(Step::ForgetSpillover { order });
        }
    }

    fn return_steps(&self, state: &State, order: usize, steps: &mut Vec<Step>) {
        let Order {
            giving_back,
            records,
            ..
        } = &state.orders[order];
        if giving_back.is_none() && self.returns && taken_at(&state.orders[order]).is_some() {
            steps.push(Step::Cancel { order });
            steps.push(Step::Reject { order });
        }
        if let Some(Return { segment, stage }) = *giving_back {
            let segment = usize::from(segment);
            if segment != HOME {
                steps.push(Step::ReleaseCount { order });
            }
            if segment == HOME || stage > ReturnStage::Pending || !self.rules.count_comes_back_first
            {
                steps.push(Step::Release { order });
                if records[segment].decision == Decision::Released {
                    steps.push(Step::RecordReturn { order });
                }
            }
        }
    }

    fn ask(
        &self,
        state: &mut State,
        order: usize,
        deadline: Time,
        segment: usize,
        round: u8,
    ) -> Reply {
        match (round, segment) {
            (0, HOME) => scripts::reserve_home(self.rules, self.limit, state, order, deadline),
            (0, _) => scripts::reserve_next(self.rules, state, order, segment, deadline),
            _ => scripts::reserve_again(self.rules, state, order, segment, deadline, round),
        }
    }

    fn reservation(&self, state: &mut State, order: usize, attempt: Attempt, segment: usize) {
        let reply = self.ask(state, order, attempt.deadline, segment, attempt.round);
        if attempt.stage == Stage::Asking(segment as u8) {
            let order = &mut state.orders[order];
            // A higher round than one's own has been declined by all before this segment.
            let round = match reply {
                Reply::Replied(Decision::Declined) => {
                    attempt.round.max(order.records[segment].round)
                }
                _ => attempt.round,
            };
            let stage = self.after(attempt.stage, segment, reply);
            replace(
                order,
                attempt,
                Attempt {
                    round,
                    stage,
                    ..attempt
                },
            );
        }
    }

    fn reopen(&self, state: &mut State, order: usize, attempt: Attempt) {
        let reply =
            scripts::reopen_spillover(self.rules, self.limit, state, order, attempt.deadline);
        if attempt.stage == Stage::Asking(HOME as u8) && reply == Reply::Replied(Decision::Declined)
        {
            let round = state.orders[order].records[HOME].round;
            let next = Attempt {
                round,
                since_round: round,
                stage: self.after(attempt.stage, HOME, reply),
                ..attempt
            };
            replace(&mut state.orders[order], attempt, next);
        }
    }

    fn next_round(&self, order: &mut Order, attempt: Attempt) {
        let first = if self.rules.home_opens_the_round {
            HOME
        } else {
            HOME + 1
        };
        let next = Attempt {
            round: attempt.round + 1,
            stage: Stage::Asking(first as u8),
            ..attempt
        };
        replace(order, attempt, next);
    }

    /// Where an attempt goes on after the answer that it waited for. Told a final answer, it has
    /// nothing left to do.
    fn after(&self, stage: Stage, segment: usize, reply: Reply) -> Stage {
        match reply {
            Reply::Replied(Decision::Taken) => Stage::TookAt(segment as u8),
            Reply::Replied(Decision::Declined) if segment + 1 == self.ring => Stage::AllDeclined,
            Reply::Replied(Decision::Declined) => Stage::Asking(segment as u8 + 1),
            Reply::Replied(_) | Reply::Refused => stage,
        }
    }

    fn find_due(&self, state: &mut State, order: usize) {
        let Some(until) = scripts::due_spillover(self.rules, state, order) else {
            return;
        };
        if self.rules.home_last {
            send_forget_declined(&mut state.orders[order], until);
        } else {
            state.orders[order].forgetting_home = Some(until);
        }
    }

    fn forget_declined(&self, state: &mut State, order: usize, segment: usize) {
        let Some(Forgetting { until, mut done }) = state.orders[order].forgetting else {
            return;
        };
        scripts::forget_declined(self.rules, state, order, segment, until);
        done[segment - 1] = true;
        let order = &mut state.orders[order];
        order.forgetting = Some(Forgetting { until, done });
        if self.rules.home_last && done[..self.ring - 1].iter().all(|done| *done) {
            order.forgetting_home = order.forgetting_home.max(Some(until));
        }
    }

    fn forget_spillover(&self, state: &mut State, order: usize) {
        let Some(until) = state.orders[order].forgetting_home else {
            return;
        };
        scripts::forget_spillover(self.rules, state, order, until);
        if !self.rules.home_last {
            send_forget_declined(&mut state.orders[order], until);
        }
    }

    fn reject(&self, state: &mut State, order: usize) {
        if let Some(segment) = taken_at(&state.orders[order]) {
            scripts::reject(state, order, segment);
            if self.rules.rejected_gives_its_count_back {
                state.orders[order].giving_back = Some(Return {
                    segment: segment as u8,
                    stage: ReturnStage::Pending,
                });
            }
        }
    }

    fn release(&self, state: &mut State, step: Step) {
        match step {
            Step::Cancel { order } => {
                let order = &mut state.orders[order];
                order.giving_back = taken_at(order).map(|segment| Return {
                    segment: segment as u8,
                    stage: ReturnStage::Pending,
                });
            }
            Step::Reject { order } => self.reject(state, order),
            Step::ReleaseCount { order } => {
                scripts::release_count(self.rules, state, order);
                advance(&mut state.orders[order], ReturnStage::CountIsBack);
            }
            Step::Release { order } => {
                if let Some(Return { segment, .. }) = state.orders[order].giving_back {
                    scripts::release(self.rules, state, order, usize::from(segment));
                }
            }
            Step::RecordReturn { order } => {
                advance(&mut state.orders[order], ReturnStage::Recorded)
            }
            _ => {}
        }
    }

    /// Takes one step, without bringing the state into its shortest form.
    pub fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Tick => state.now += 1,
            Step::Arrive { segment } => {
                state.outside -= 1;
                state.available[segment] += 1;
            }
            Step::Leave { segment } => {
                state.available[segment] -= 1;
                state.outside += 1;
            }
            Step::Start { order, deadline } => {
                if let Some(slot) = state.orders[order]
                    .attempts
                    .iter_mut()
                    .find(|slot| slot.is_none())
                {
                    *slot = Some(Attempt {
                        deadline,
                        round: 0,
                        stage: Stage::Asking(HOME as u8),
                        since_round: 0,
                    });
                }
            }
            Step::Reservation {
                order,
                attempt,
                segment,
            } => self.reservation(state, order, attempt, segment),
            Step::Earlier {
                order,
                attempt,
                segment,
                round,
            } => {
                self.ask(state, order, attempt.deadline, segment, round);
            }
            Step::NextRound { order, attempt } => {
                self.next_round(&mut state.orders[order], attempt)
            }
            Step::Finish {
                order,
                attempt,
                end,
                round,
            } => scripts::finish_spillover(self.rules, state, order, end, attempt.deadline, round),
            Step::Reopen { order, attempt } => self.reopen(state, order, attempt),
            Step::LoseRound { order } => scripts::lose_round(state, order),
            Step::FindDue { order } => self.find_due(state, order),
            Step::ForgetDeclined { order, segment } => self.forget_declined(state, order, segment),
            Step::ForgetSpillover { order } => self.forget_spillover(state, order),
            Step::Cancel { .. }
            | Step::Reject { .. }
            | Step::ReleaseCount { .. }
            | Step::Release { .. }
            | Step::RecordReturn { .. } => self.release(state, step),
            Step::Expire { order, segment } => {
                state.orders[order].records[segment] = Default::default()
            }
        }
    }
}

/// The segment that the ledger has the order at.
pub fn taken_at(order: &Order) -> Option<usize> {
    order
        .records
        .iter()
        .position(|record| record.decision == Decision::Taken)
}

fn advance(order: &mut Order, to: ReturnStage) {
    if let Some(giving_back) = &mut order.giving_back {
        giving_back.stage = giving_back.stage.max(to);
    }
}

fn send_forget_declined(order: &mut Order, until: Time) {
    if order
        .forgetting
        .is_none_or(|forgetting| forgetting.until < until)
    {
        order.forgetting = Some(Forgetting {
            until,
            done: Default::default(),
        });
    }
}

fn replace(order: &mut Order, attempt: Attempt, by: Attempt) {
    if let Some(slot) = order
        .attempts
        .iter_mut()
        .find(|slot| **slot == Some(attempt))
    {
        *slot = Some(by);
    }
}

impl Model for Spillover {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        assert!(self.ring <= SEGMENTS && self.orders <= ORDERS && self.attempts <= ATTEMPTS);
        vec![State::initial(self.units).normalized(self.rules, self.orders)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        steps.push(Step::Tick);
        self.stock_steps(state, steps);
        for order in 0..self.orders {
            self.attempt_steps(state, order, steps);
            self.forget_steps(state, order, steps);
            if self.may_lose_round(&state.orders[order]) {
                steps.push(Step::LoseRound { order });
            }
            self.return_steps(state, order, steps);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = *state;
        self.take(&mut next, step);
        Some(next.normalized(self.rules, self.orders)).filter(|next| next != state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}
