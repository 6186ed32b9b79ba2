//! What must hold in every state, and what must be reachable so that holding means something.

use stateright::Property;

use super::{
    resharding::{Resharding, Step},
    state::{Attempt, Decision, OLD_RING, SEGMENTS, State, TRIES, around},
};

pub const TAKEN_ONCE: &str = "segments take units for the order once";
pub const TOLD_THE_TRUTH: &str = "the order is told sold_out only if no unit was free";
pub const CONSERVED: &str = "no unit is made or lost";
pub const SETTLED: &str = "once a reconciler has finished, a repeat in the new ring is answered";

/// Everything that is checked.
pub fn all() -> Vec<Property<Resharding>> {
    vec![
        Property::always(TAKEN_ONCE, |_, state: &State| state.takes <= 1),
        Property::always(TOLD_THE_TRUTH, |_, state: &State| !state.told_falsely),
        Property::always(CONSERVED, |resharding: &Resharding, state: &State| {
            state.free() + state.others + state.takes == resharding.units
        }),
        Property::always(SETTLED, a_repeat_is_answered),
        Property::sometimes("the new segment takes the order", |_, state: &State| {
            state.segments[SEGMENTS - 1].decision == Some(Decision::Taken)
        }),
        Property::sometimes(
            "the new home knows of a take elsewhere",
            |_, state: &State| {
                state.ring != OLD_RING
                    && state.segments[SEGMENTS - 1].decision == Some(Decision::Elsewhere)
            },
        ),
        Property::sometimes("the second try commits", |_, state: &State| {
            state.ring == TRIES
        }),
        Property::sometimes(
            "the order ends sold out in the new ring",
            |_, state: &State| state.segments[SEGMENTS - 1].decision == Some(Decision::SoldOut),
        ),
        Property::sometimes(
            "an attempt of the old ring meets the new one",
            |_, state: &State| {
                let is_old = |attempt: &Attempt| matches!(attempt, Attempt::Asks { ring: OLD_RING, place } if *place > 0);
                state.ring != OLD_RING && state.attempts.iter().any(is_old)
            },
        ),
    ]
}

/// From every state in which a reconciler can still finish, or has.
fn a_repeat_is_answered(resharding: &Resharding, state: &State) -> bool {
    let mut state = state.clone();
    if !state.reconciler.is_done {
        // Its successor, with a higher token than any other.
        resharding.take(&mut state, Step::Claim);
        (0..SEGMENTS).for_each(|segment| resharding.take(&mut state, Step::Halt { segment }));
        (0..SEGMENTS).for_each(|segment| resharding.take(&mut state, Step::Set { segment }));
        resharding.take(&mut state, Step::Commit);
    }
    let ring = state.ring;
    state.was_refused = false;
    resharding.take(&mut state, Step::Begin { attempt: 0, ring });
    for _ in around(ring) {
        if matches!(state.attempts[0], Attempt::Asks { .. }) {
            resharding.take(&mut state, Step::Ask { attempt: 0 });
        }
    }
    !state.was_refused
}
