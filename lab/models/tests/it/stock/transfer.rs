//! Transfers between segments, checked in every interleaving: a unit that moves is neither lost nor
//! there twice.
//!
//! Two segments, a transfer there and one back, orders that take and release meanwhile, a
//! recorder that is behind, and two reconcilers: the older one may be paused at any step and go on
//! much later. What a reconciler has sent can be delivered at any later time, again and again, or
//! never; so a crash at any step is a reconciler that sends nothing more.
//!
//! The two rules: a segment remembers a transfer by its id, and units are put in when the ledger
//! says that they went out, as many as it says. The fence is modelled as the scripts have it, but
//! is no rule of these: as long as segments remember transfers permanently, no unit depends on it.
//!
//! Left out: Redis that loses writes (`recovery.rs` has a transfer, too), top-ups and take-backs (a
//! transfer of which one end is the item), and segments that are being repaired (to refuse is to
//! lose a message).

mod moving;
mod properties;
mod state;

use self::{
    moving::{Moving, Rules},
    properties::EXPLAINED,
};

const MOVING: Moving = Moving {
    rules: Rules::ALL,
    units: 1,
    asked: 1,
    behind: 2,
};

sound! {
    transfers_lose_no_unit_and_make_none: MOVING, 1_000 states;
    #[ignore = "150 thousand states"]
    transfers_lose_no_unit_and_make_none_at_a_larger_size:
        Moving { units: 2, asked: 2, behind: 3, ..MOVING }, 100_000 states;
}

refuted! {
    without_remembering_transfers_the_checker_finds_a_segment_that_nobody_can_explain:
        Moving { units: 2, ..MOVING }, without transfers_are_remembered => EXPLAINED;
    without_waiting_for_the_ledger_the_checker_finds_a_unit_that_is_there_twice:
        MOVING, without in_waits_for_the_ledger => EXPLAINED;
}
