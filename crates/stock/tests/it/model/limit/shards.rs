//! What can happen next.

use stateright::{Model, Property};

use super::{
    properties,
    state::{Event, Order, State, Transaction},
};

/// The rules, one switch each. [`Rules::ALL`] is the protocol.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Who records an order that strayed from its home holds it against what the ledger has of the buyer.
    pub strays_are_checked: bool,
    /// So does who records an order at home, if the ledger has something of the buyer. Nobody asks it before the first stray is written down.
    pub known_buyers_are_checked: bool,
    /// Whether there was a stray is asked when nobody can be in between any more.
    pub strays_are_asked_for_in_turn: bool,
    /// Who records a stray is alone with the item's orders until the commit.
    pub strays_are_alone: bool,
}

impl Rules {
    /// The protocol.
    pub const ALL: Self = Self {
        strays_are_checked: true,
        known_buyers_are_checked: true,
        strays_are_asked_for_in_turn: true,
        strays_are_alone: true,
    };
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
    TakeStray {
        order: usize,
    },
    /// Home's server forgets all but the first events.
    Failover {
        remaining: usize,
    },
    /// Somebody who is about to claim home's row looks whether there was a stray. Not the protocol: it does so in `BeginHome`.
    LookForStrays,
    /// Somebody claims home's row, reads one entry, and what the ledger has of the buyer.
    BeginHome,
    /// The same of the other segment.
    BeginStray,
    /// Somebody halts home, and reads all of it.
    BeginMending,
    /// It is recorded.
    CommitHome,
    CommitStray,
    CommitMending,
}

impl Shards {
    fn asks(&self, state: &State, steps: &mut Vec<Step>) {
        // While home is mended it refuses.
        if state.mending.is_some() {
            return;
        }
        for order in 0..self.orders {
            if !state.home_knows(order) && state.counted() < self.limit {
                steps.extend([Step::Take { order }, Step::LetGo { order }]);
            }
        }
    }

    fn transactions(&self, state: &State, steps: &mut Vec<Step>) {
        let alone = self.rules.strays_are_alone;
        let nobody = state.at_home.is_none() && state.mending.is_none() && state.stray.is_none();
        // Whoever has home's row has it alone.
        let home_is_free = state.at_home.is_none() && state.mending.is_none();
        if !self.rules.strays_are_asked_for_in_turn && home_is_free && state.looked.is_none() {
            steps.push(Step::LookForStrays);
        }
        if home_is_free && (!alone || state.stray.is_none()) && state.next_at_home().is_some() {
            steps.push(Step::BeginHome);
        }
        if home_is_free && (!alone || nobody) {
            steps.push(Step::BeginMending);
        }
        if state.stray.is_none() && (!alone || nobody) && state.next_stray().is_some() {
            steps.push(Step::BeginStray);
        }
        steps.extend(state.at_home.is_some().then_some(Step::CommitHome));
        steps.extend(state.stray.is_some().then_some(Step::CommitStray));
        steps.extend(state.mending.is_some().then_some(Step::CommitMending));
    }

    fn take(&self, state: &mut State, step: Step) {
        match step {
            Step::Take { order } => state.home.push(Event::Took(order)),
            Step::LetGo { order } => {
                state.home.push(Event::LetGo(order));
                state.sent[order] = true;
            }
            Step::TakeStray { order } => state.other.push(order),
            Step::Failover { remaining } => {
                state.home.truncate(remaining);
                state.failovers += 1;
            }
            Step::LookForStrays => state.looked = Some(state.has_strayed()),
            Step::BeginHome => {
                let strayed = state.looked.take().unwrap_or(state.has_strayed());
                state.at_home = state.next_at_home().map(|order| Transaction {
                    order,
                    held: state.held(),
                    strayed,
                });
            }
            Step::BeginStray => {
                state.stray = state.next_stray().map(|order| Transaction {
                    order,
                    held: state.held(),
                    strayed: true,
                })
            }
            Step::BeginMending => state.mending = Some((state.home.clone(), state.held())),
            Step::CommitHome => self.commit_home(state),
            Step::CommitStray => self.commit_stray(state),
            Step::CommitMending => self.commit_mending(state),
        }
    }

    /// It was read while it stood there; whether it still does, nobody asks.
    fn commit_home(&self, state: &mut State) {
        let Some(Transaction {
            order,
            held,
            strayed,
        }) = state.at_home.take()
        else {
            return;
        };
        let watched = self.rules.known_buyers_are_checked && strayed && held > 0;
        state.recorded.push(Event::Took(order));
        state.record(order, !watched || held < self.limit);
    }

    fn commit_stray(&self, state: &mut State) {
        let Some(Transaction { order, held, .. }) = state.stray.take() else {
            return;
        };
        state.strays_recorded += 1;
        state.record(order, !self.rules.strays_are_checked || held < self.limit);
    }

    /// The compare-and-set: nothing if home is not what was read.
    fn commit_mending(&self, state: &mut State) {
        let Some((home, mut held)) = state.mending.take() else {
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
        state.home.push(Event::Mended {
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
        self.asks(state, steps);
        steps.extend(
            (0..self.orders)
                .filter(|order| state.sent[*order] && !state.other.contains(order))
                .map(|order| Step::TakeStray { order }),
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
