//! Direct record, checked in every interleaving: a recorder that takes entries from the memory of
//! its own process, and not from the outbox, records one history and no other.
//!
//! The model comes first: no recorder does this yet, and `reserve_home` knows no nonce. A claim is
//! what the recorder does today.
//!
//! # What is modelled
//!
//! A segment, its ledger row, and two processes, each with a recorder. `reserve_home` returns the
//! position of the entry before and the nonce that the segment keeps of it, and the process hands
//! its recorder the new entry. At any later time, the recorder writes entries that continue each
//! other and its own last commit, in one statement. Everything else it claims: it reads the outbox
//! from the checkpoint on, checks the anchor, and commits. In between anything may happen:
//!
//! * Redis loses the end of its history, at any moment, also between a reply and its recording. The
//!   promoted server uses the same positions again.
//! * A reply is lost, and a process crashes: between the reply and the commit, or between the
//!   commit and the trim.
//! * Home lets an order of the buyer go, a failover makes home forget that, and another segment
//!   takes the order.
//! * A repair, as one step.
//!
//! # What is left out, and why nothing is lost
//!
//! * *Row locks.* What was decided on another checkpoint does not commit; in between, all may act.
//! * *Batches of several orders.* An order is an entry here. A batch is recorded whole or not at
//!   all.
//! * *The steps of a repair, releases, transfers.* `recovery.rs`, which has direct record too.
//! * *A trim that meets another history.* A trim names a position. A promoted server numbers by its
//!   clock, and the trim arrives within its time limit.

mod properties;
mod recorders;
mod state;

use self::{
    properties::{EXPLAINED, LIMIT, NEEDLESS},
    recorders::{Recorders, Rules},
};

const TWO_RECORDERS: Recorders = Recorders {
    rules: Rules::ALL,
    orders: 2,
    units: 2,
    limit: 2,
    recorders: 2,
    failovers: 1,
    spillover: false,
};
/// The buyer may have one: what was lost and what came after it exclude each other.
const ONE_BUYER: Recorders = Recorders {
    limit: 1,
    ..TWO_RECORDERS
};
const THREE_ENTRIES: Recorders = Recorders {
    orders: 3,
    units: 3,
    limit: 3,
    recorders: 1,
    ..TWO_RECORDERS
};
const SPILLOVER: Recorders = Recorders {
    orders: 3,
    recorders: 1,
    spillover: true,
    ..ONE_BUYER
};

sound! {
    two_recorders_and_a_failover_record_one_history: TWO_RECORDERS, 500_000 states;
    a_buyer_stays_within_the_limit_whatever_is_recorded_from_memory: ONE_BUYER, 5_000 states;
    a_list_of_three_entries_is_recorded_as_far_as_it_continues: THREE_ENTRIES, 400_000 states;
    a_buyer_stays_within_the_limit_with_orders_off_home: SPILLOVER, 1_000 states;
}

refuted! {
    without_the_nonce_an_entry_at_the_same_position_passes_for_the_one_before:
        THREE_ENTRIES, without nonce => EXPLAINED;
    with_a_gap_in_the_list_an_entry_of_another_process_is_never_recorded:
        THREE_ENTRIES, without gap => EXPLAINED;
    a_list_that_does_not_continue_the_checkpoint_leaves_entries_out:
        THREE_ENTRIES, without continues_the_checkpoint => EXPLAINED;
    without_the_compare_and_set_two_histories_are_recorded:
        ONE_BUYER, without compare_and_set => LIMIT;
    terms_that_are_remembered_let_an_off_home_order_come_on_top: SPILLOVER, without terms => LIMIT;
    a_recorder_that_goes_on_behind_a_lost_entry_never_notices_it:
        TWO_RECORDERS, without anchor => EXPLAINED;
    a_trim_that_takes_the_anchor_ends_in_a_repair_without_a_failover:
        Recorders { failovers: 0, ..TWO_RECORDERS }, without anchor_stays => NEEDLESS;
}
