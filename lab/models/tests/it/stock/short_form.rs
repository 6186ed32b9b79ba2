//! The check is only worth something if the short form of a state loses nothing. This holds it
//! against states as they are.

use std::collections::HashSet;

use stateright::Model;

use super::{
    rules::Rules,
    spillover::Spillover,
    state::{Order, State},
};

const SPILLOVER: Spillover = Spillover {
    rules: Rules::ALL,
    ring: 3,
    orders: 1,
    attempts: 2,
    units: 1,
    limit: 1,
    returns: false,
    rounds: 1,
    gives_up: false,
    loses: false,
};
const LONGEST: u8 = 6;

/// Every state that is reached before the clock shows `LONGEST`, as it is.
fn states_as_they_are() -> HashSet<State> {
    let mut found: HashSet<State> = SPILLOVER.init_states().into_iter().collect();
    let mut pending: Vec<State> = found.iter().copied().collect();
    while let Some(state) = pending.pop() {
        let fresh = successors(&state)
            .filter(|next| next.now <= LONGEST)
            .filter(|next| found.insert(*next));
        pending.extend(fresh.collect::<Vec<_>>());
    }
    found
}

fn successors(state: &State) -> impl Iterator<Item = State> {
    let mut steps = Vec::new();
    SPILLOVER.actions(state, &mut steps);
    steps.into_iter().map(|step| {
        let mut next = *state;
        SPILLOVER.take(&mut next, step);
        next
    })
}

fn short(state: &State) -> State {
    state.normalized(SPILLOVER.rules, SPILLOVER.orders)
}

/// Where a state can lead, itself included: an unobservable step leads from a short form
/// to itself.
fn future(state: &State) -> HashSet<State> {
    successors(state)
        .chain([*state])
        .map(|next| short(&next))
        .collect()
}

fn attempts(state: &State) -> usize {
    state
        .orders
        .iter()
        .map(|Order { attempts, .. }| attempts.iter().flatten().count())
        .sum()
}

#[test]
fn the_short_form_of_a_state_has_the_same_future() {
    let states = states_as_they_are();
    for state in &states {
        let short = short(state);
        if attempts(state) == attempts(&short) {
            assert_eq!(future(state), future(&short), "{state:?}");
        } else {
            // An attempt past every deadline still keeps others from starting here, and does
            // not in the short form.
            assert!(future(state).is_subset(&future(&short)), "{state:?}");
        }
    }
    println!("{} states within {LONGEST} ticks", states.len());
    assert!(states.len() > 10_000);
}
