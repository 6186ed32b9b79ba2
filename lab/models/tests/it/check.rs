//! Runs the checker: a sound model to the end, a weakened one to its first counterexample.
//!
//! The macros make a test of each line. One of `sound!` has a model, and how many states it has at
//! least. One of `refuted!` has a model, the rules that are left out of it, and the property that
//! is broken then.

use std::{collections::BTreeSet, fmt::Debug, hash::Hash};

use stateright::{Checker, HasDiscoveries, Model};

/// Makes the rules of a protocol.
macro_rules! rules {
    ($($(#[$attribute:meta])* $rule:ident,)+) => {
        /// The rules, one switch each, so that each can be left out alone.
        #[derive(Debug, Clone, Copy)]
        pub struct Rules {
            $($(#[$attribute])* pub $rule: bool,)+
        }

        impl Rules {
            /// Nothing is left out.
            pub const ALL: Self = Self { $($rule: true,)+ };
        }
    };
}

/// Makes tests of sound models.
macro_rules! sound {
    ($($(#[$attribute:meta])* $test:ident: $model:expr, $at_least:literal states;)+) => {
        $(
            $(#[$attribute])*
            #[test]
            fn $test() {
                $crate::check::assert_sound($model, $at_least);
            }
        )+
    };
}

/// Makes tests of models with rules left out. They call the function that follows `by`, or else
/// [`find_counterexample`].
macro_rules! refuted {
    (
        by $find:path;
        $($(#[$attribute:meta])* $test:ident:
            $model:expr $(, without $($rule:ident),+)? => $property:expr;)+
    ) => {
        $(
            $(#[$attribute])*
            #[test]
            fn $test() {
                #[allow(unused_mut, reason = "some are refuted as they are")]
                let mut model = $model;
                $($(model.rules.$rule = false;)+)?
                $find(model, $property);
            }
        )+
    };
    ($test:ident: $($tests:tt)+) => {
        refuted! { by $crate::check::find_counterexample; $test: $($tests)+ }
    };
}

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
