//! What can happen next.

use stateright::{Model, Property};

use super::{
    properties,
    state::{Event, Order, State, Transaction},
};

rules! {
    /// Who records an order that strayed from its home holds it against what the ledger has of the
    /// buyer.
    off_home_are_checked,
    /// Also when an order at home is recorded, if the ledger has an order of the buyer. No process
    /// checks it before the first off-home order is written down.
    known_buyers_are_checked,
    /// Whether the query for off-home orders comes after the row locks, so that none comes in
    /// between.
    off_home_orders_are_read_in_turn,
    /// Who records an off-home order is alone with the item's orders until the commit.
    off_home_are_alone,
}

/// Two shards under some rules, and how much of them is checked.
#[derive(Debug, Clone)]
pub struct Shards {
    /// The rules that hold.
    pub rules: Rules,
    /// Orders of the buyer, of a unit each.
    pub orders: usize,
    /// Units that the buyer may have.
    pub limit: usize,
    /// How often home's server forgets.
    pub failovers: u8,
}

/// One atomic step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Home takes the order.
    Take {
        order: usize,
    },
    /// Home lets it go on.
    LetGo {
        order: usize,
    },
    /// The other segment takes it.
    TakeOffHome {
        order: usize,
    },
    /// Home's server forgets all but the first events.
    Failover {
        remaining: usize,
    },
    /// A recorder queries for off-home orders before it claims home's row. Not the protocol:
    /// it does so in `BeginHome`.
    LookForOffHome,
    /// A recorder claims home's row, reads one entry, and the buyer's orders in the ledger.
    BeginHome,
    /// The same of the other segment.
    BeginOffHome,
    /// A repairer halts home, and reads all of it.
    BeginRepairing,
    /// It is recorded.
    CommitHome,
    CommitOffHome,
    CommitRepairing,
}

impl Shards {
    fn reservations(&self, state: &State, steps: &mut Vec<Step>) {
        // While home is repaired it refuses.
        if state.repairing.is_some() {
            return;
        }
        for order in 0..self.orders {
            if !state.home_knows(order) && state.counted() < self.limit {
                steps.extend([Step::Take { order }, Step::LetGo { order }]);
            }
        }
    }

    fn transactions(&self, state: &State, steps: &mut Vec<Step>) {
        let alone = self.rules.off_home_are_alone;
        let no_other =
            state.at_home.is_none() && state.repairing.is_none() && state.off_home.is_none();
        // The row of home is locked exclusively.
        let home_is_free = state.at_home.is_none() && state.repairing.is_none();
        if !self.rules.off_home_orders_are_read_in_turn && home_is_free && state.looked.is_none() {
            steps.push(Step::LookForOffHome);
        }
        if home_is_free && (!alone || state.off_home.is_none()) && state.next_at_home().is_some() {
            steps.push(Step::BeginHome);
        }
        if home_is_free && (!alone || no_other) {
            steps.push(Step::BeginRepairing);
        }
        if state.off_home.is_none() && (!alone || no_other) && state.next_off_home().is_some() {
            steps.push(Step::BeginOffHome);
        }
        steps.extend(state.at_home.is_some().then_some(Step::CommitHome));
        steps.extend(state.off_home.is_some().then_some(Step::CommitOffHome));
        steps.extend(state.repairing.is_some().then_some(Step::CommitRepairing));
    }

    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Take { order } => state.home.push(Event::Took(order)),
            Step::LetGo { order } => {
                state.home.push(Event::LetGo(order));
                state.sent[order] = true;
            }
            Step::TakeOffHome { order } => state.other.push(order),
            Step::Failover { remaining } => {
                state.home.truncate(remaining);
                state.failovers += 1;
            }
            Step::LookForOffHome => state.looked = Some(state.has_is_off_home()),
            Step::BeginHome => {
                let is_off_home = state.looked.take().unwrap_or(state.has_is_off_home());
                state.at_home = state.next_at_home().map(|order| Transaction {
                    order,
                    held: state.held(),
                    is_off_home,
                });
            }
            Step::BeginOffHome => {
                state.off_home = state.next_off_home().map(|order| Transaction {
                    order,
                    held: state.held(),
                    is_off_home: true,
                })
            }
            Step::BeginRepairing => state.repairing = Some((state.home.clone(), state.held())),
            Step::CommitHome => self.commit_home(state),
            Step::CommitOffHome => self.commit_off_home(state),
            Step::CommitRepairing => self.commit_repairing(state),
        }
    }

    /// It was read while it stood there; whether it still does is not checked.
    fn commit_home(&self, state: &mut State) {
        let Some(Transaction {
            order,
            held,
            is_off_home,
        }) = state.at_home.take()
        else {
            return;
        };
        let watched = self.rules.known_buyers_are_checked && is_off_home && held > 0;
        state.recorded.push(Event::Took(order));
        state.record(order, !watched || held < self.limit);
    }

    fn commit_off_home(&self, state: &mut State) {
        let Some(Transaction { order, held, .. }) = state.off_home.take() else {
            return;
        };
        state.off_home_recorded += 1;
        state.record(order, !self.rules.off_home_are_checked || held < self.limit);
    }

    /// The compare-and-set: nothing if home is not what was read.
    fn commit_repairing(&self, state: &mut State) {
        let Some((home, mut held)) = state.repairing.take() else {
            return;
        };
        if home != state.home {
            return;
        }
        for event in home {
            if let Event::Took(order) = event
                && state.orders[order] == Order::Unknown
            {
                let holds = held < self.limit;
                held += usize::from(holds);
                state.record(order, holds);
            }
        }
        state.home.push(Event::Repaired {
            counted: state.held(),
        });
        state.recorded = state.outbox().collect();
    }
}

impl Model for Shards {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial(self.orders)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.reservations(state, steps);
        steps.extend(
            (0..self.orders)
                .filter(|order| state.sent[*order] && !state.other.contains(order))
                .map(|order| Step::TakeOffHome { order }),
        );
        if state.failovers < self.failovers {
            steps.extend((0..state.home.len()).map(|remaining| Step::Failover { remaining }));
        }
        self.transactions(state, steps);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        self.take(&mut next, step);
        Some(next).filter(|next| next != state && next.is_within_bounds())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
