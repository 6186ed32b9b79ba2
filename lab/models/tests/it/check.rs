//! Runs the checker: a sound model to the end, a weakened one to its first counterexample.

use std::{collections::BTreeSet, fmt::Debug, hash::Hash};

use stateright::{Checker, HasDiscoveries, Model};

/// Every property holds in every state, and there are so many of them.
pub fn assert_sound<M>(model: M, at_least: usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq,
{
    let checker = model.checker().threads(2).spawn_bfs().join();
    let states = checker.unique_state_count();
    println!(
        "{states} states, {} transitions, {} steps deep",
        checker.state_count(),
        checker.max_depth()
    );
    checker.assert_properties();
    assert!(
        states >= at_least,
        "the model has shrunk to {states} states: what can no longer happen?"
    );
}

/// One thread, so that a variant is refuted by the same short trace every time. Returns the state
/// that the trace ends in.
pub fn find_counterexample<M>(model: M, property: &'static str) -> M::State
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq,
{
    let wanted = HasDiscoveries::AllOf(BTreeSet::from([property]));
    let checker = model
        .checker()
        .threads(1)
        .finish_when(wanted)
        .spawn_bfs()
        .join();
    let path = checker.assert_any_discovery(property);
    let last = path.last_state().clone();
    let steps = path.into_actions();
    println!(
        "{} states, found in {} steps:",
        checker.unique_state_count(),
        steps.len()
    );
    for step in steps {
        println!("  {step:?}");
    }
    last
}
