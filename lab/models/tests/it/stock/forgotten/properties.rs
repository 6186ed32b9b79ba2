//! What must hold in every state, and what must be reachable so that holding means something.

use stateright::Property;

use super::{
    check::{HomeCheck, Step},
    state::{Found, State},
};

/// The promise.
pub const KNOWN: &str = "a home that is marked knows every order of the ledger";

/// The check ends.
pub const SETTLED: &str = "from every state the workers alone come to a mark";

/// What buyers hear meanwhile.
pub const TOLD: &str = "no order of the ledger is refused at the door";

/// Everything that is checked.
pub fn all(check: &HomeCheck) -> Vec<Property<HomeCheck>> {
    let mut all = of_the_check();
    all.push(Property::always(TOLD, |_, state: &State| {
        !state.wrongly_refused
    }));
    if check.door {
        all.push(Property::sometimes(
            "the door meets an order that home has forgotten",
            |_, state: &State| {
                let found = state.door.and_then(|door| door.found);
                found == Some(Found::InTheLedgerOnly)
            },
        ));
    }
    all
}

fn of_the_check() -> Vec<Property<HomeCheck>> {
    vec![
        Property::always(KNOWN, |_, state: &State| {
            !state.is_marked() || state.forgotten().is_empty()
        }),
        Property::always(SETTLED, settles),
        Property::sometimes("an order of the ledger is forgotten", |_, state: &State| {
            !state.forgotten().is_empty()
        }),
        Property::sometimes(
            "an order is forgotten before the ledger has it",
            |_, state: &State| {
                state.other.len() > state.recorded && !state.home_knows(state.other[state.recorded])
            },
        ),
        Property::sometimes("a forgotten order was restored", |_, state: &State| {
            state.failovers > 0 && state.is_marked() && !state.ledger().is_empty()
        }),
    ]
}

/// Steps of workers until the end: more than they need.
const STEPS_MOST: usize = 32;

/// The recorder, the clock and one reconciler go on; no server fails and no order comes.
fn settles(check: &HomeCheck, state: &State) -> bool {
    let mut state = state.clone();
    for _ in 0..STEPS_MOST {
        if state.is_marked() && state.recorded == state.other.len() {
            return state.forgotten().is_empty();
        }
        let step = worker_step(check, &state);
        check.take(&mut state, step);
    }
    false
}

fn worker_step(check: &HomeCheck, state: &State) -> Step {
    if state.recorded < state.other.len() {
        return Step::Record;
    }
    let mut steps = Vec::new();
    check.reconciler_steps(state, &mut steps);
    steps.pop().unwrap_or(Step::Tick)
}
