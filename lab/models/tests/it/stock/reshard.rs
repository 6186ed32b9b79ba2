//! Resharding of a live item, checked in every interleaving. It is a protocol that is not built
//! yet: `docs/decisions/2026-11-24-resharding-is-a-repair-of-all-segments.md` says why it is this
//! one.
//!
//! An item of two segments gets a third one, which becomes the home of the buyer. Attempts of one
//! order go by the old ring or by the new one, stop at any step, and go on much later. Other buyers
//! take and release units, and units move between the segments of the item. A reconciler halts the
//! segments, stages what their outboxes have, sets each segment to the new ring with the memory
//! that the ledger has for it, and commits. It may die between any two steps; then another one
//! begins again.
//!
//! Each rule is left out alone, and the checker must find the order with two units, or an order
//! that is told `sold_out` beside a free unit.
//!
//! Left out: rounds, deadlines and forgetting (`model.rs`: what a segment has stored ends with the
//! ring, and no later attempt goes by that ring), snapshots that read segments at different moments
//! (`truth.rs`), units in transit (`transfer.rs`), the buyer's count, which is restored as the
//! decisions are, and Redis that loses writes (`recovery.rs`; the ledger's key of orders covers the
//! rest).

mod properties;
mod resharding;
mod state;

use self::{
    properties::{TAKEN_ONCE, TOLD_THE_TRUTH},
    resharding::{Resharding, Rules},
};
use crate::check::find_counterexample;

const RESHARDING: Resharding = Resharding {
    rules: Rules::ALL,
    units: 2,
    attempts: 2,
};

fn find_broken_promise(model: Resharding, property: &'static str) {
    let last = find_counterexample(model, property);
    assert!(last.takes > 1 || last.told_falsely);
}

sound! {
    a_resharded_item_takes_an_order_once_and_calls_none_sold_out_too_early:
        RESHARDING, 150_000 states;
    #[ignore = "over a million states"]
    a_resharded_item_takes_an_order_once_at_a_larger_size:
        Resharding { attempts: 3, ..RESHARDING }, 1_000_000 states;
}

/// The naive way: append segments, and change every home at once.
#[test]
fn with_a_ring_that_merely_grows_the_checker_finds_a_double_take() {
    let rules = Rules::NONE;
    find_broken_promise(
        Resharding {
            rules,
            ..RESHARDING
        },
        TAKEN_ONCE,
    );
}

refuted! {
    by find_broken_promise;
    with_a_home_that_answers_any_ring_the_checker_finds_a_double_take:
        RESHARDING, without home_checks_the_ring => TAKEN_ONCE;
    with_a_process_of_the_old_ring_that_spills_over_the_checker_finds_a_double_take:
        RESHARDING, without others_check_the_ring => TAKEN_ONCE;
    without_restored_memory_a_repeat_is_decided_twice:
        RESHARDING, without memory_is_restored => TAKEN_ONCE;
    with_a_segment_that_is_set_before_all_are_halted_the_checker_finds_a_double_take:
        RESHARDING, without all_are_halted_first => TAKEN_ONCE;
    with_rings_that_are_told_apart_by_their_size_alone_a_second_try_takes_twice:
        RESHARDING, without ring_has_a_token => TAKEN_ONCE;
    with_a_proof_of_sold_out_that_misses_the_new_segment_an_order_is_refused_beside_a_unit:
        RESHARDING, without proof_checks_the_ring => TOLD_THE_TRUTH;
}
