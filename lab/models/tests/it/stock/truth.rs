//! What two snapshots of all segments prove, checked in every interleaving: when they agree, the
//! item had no more free units between them than the first one shows.
//!
//! *Free units* are those of all segments, and those that left one and have not arrived in another.
//! One process takes snapshot after snapshot, and reads the segments of each in any order.
//! Meanwhile units are taken and released without bound, transfers move them, the reconciler
//! settles a transfer late or again, and segments are repaired.
//!
//! A segment keeps three fields for it: `gained`, the last entry by which units came in; `leaving`,
//! the units that left by a transfer and are not known to have arrived; and `left`, the last entry
//! by which units left. The model keeps of `gained` only whether it changed since it was read, and
//! of `left` only whether it changed since a settlement was decided on.
//!
//! Left out: a failover that loses units which had come in. Until its repair such a segment shows
//! too little, and the promise of `sold_out` does not hold.

mod snapshots;

use self::snapshots::{PROOF, Rules, Snapshots};

const TWO_SEGMENTS: Snapshots = Snapshots {
    rules: Rules::ALL,
    segments: 2,
    units: 2,
};

sound! {
    two_snapshots_that_agree_prove_how_few_units_were_free: TWO_SEGMENTS, 50_000 states;
    #[ignore = "millions of states"]
    two_snapshots_of_three_segments_prove_how_few_units_were_free_at_a_larger_size:
        Snapshots { segments: 3, ..TWO_SEGMENTS }, 1_000_000 states;
}

refuted! {
    one_snapshot_proves_nothing: TWO_SEGMENTS, without two_snapshots => PROOF;
    equal_numbers_prove_nothing_without_the_gains:
        TWO_SEGMENTS, without gains_are_compared => PROOF;
    without_the_units_in_transit_the_checker_finds_a_false_proof:
        TWO_SEGMENTS, without units_in_transit_count => PROOF;
    with_units_that_are_noted_after_they_left_the_checker_finds_a_false_proof:
        TWO_SEGMENTS, without leaving_is_written_with_out => PROOF;
    with_an_arrival_that_is_no_gain_the_checker_finds_a_false_proof:
        TWO_SEGMENTS, without arrival_is_a_gain => PROOF;
    with_units_that_are_settled_in_transit_the_checker_finds_a_false_proof:
        TWO_SEGMENTS, without settled_after_arrival => PROOF;
    with_a_transfer_that_is_settled_beside_an_open_one_the_checker_finds_a_false_proof:
        TWO_SEGMENTS, without settled_when_all_arrived => PROOF;
    with_a_late_settlement_that_is_obeyed_the_checker_finds_a_false_proof:
        TWO_SEGMENTS, without settlement_names_the_last_out => PROOF;
    with_a_repair_that_is_no_gain_the_checker_finds_a_false_proof:
        TWO_SEGMENTS, without repair_is_a_gain => PROOF;
    with_a_repair_that_leaves_older_settlements_valid_the_checker_finds_a_false_proof:
        TWO_SEGMENTS, without repair_refuses_older_settlements => PROOF;
}
