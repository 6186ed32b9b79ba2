//! Repair, checked in every interleaving: whatever Redis loses, and whichever process crashes
//! meanwhile, Redis and the ledger agree in the end.
//!
//! # What is modelled
//!
//! One segment, which is also its buyers' home, and its ledger row. The segment is kept as its
//! history (`segment.rs`), so a failover is to any shorter history, also to none, at any moment,
//! also in the middle of repair. Between any two atomic steps anything may happen:
//!
//! * Orders take, are cancelled in the ledger, and release. A `release` that was sent is
//!   delivered at any time, again, or never.
//! * The recorder reads and commits in two steps, up to the next entry or up to the last one, and
//!   crashes in between. It may also commit entries that its own process has handed to it, if they
//!   continue the checkpoint: also those that Redis has lost since (`direct.rs`, not built yet).
//! * One or two reconcilers repair: claim, halt, read and decide, restore, adjust, commit. Each
//!   stops anywhere permanently, or goes on much later, or begins again under the same token
//!   because it did not get a reply. `halt_segment`, `restore_orders` and `adjust` of an earlier
//!   round may still arrive, and again. They begin whenever they like, also when nothing is wrong:
//!   so it does not matter how well drift is recognised.
//! * A transfer of a unit to the segment or from it, sent by any reconciler, delivered at any time,
//!   again, or never.
//! * A process opens a segment that does not exist any more with all its units, as if it were new.
//!
//! # What is left out, and why nothing is lost
//!
//! * *Row locks.* A lock is modelled as what it guarantees: a decision on a row that another
//!   transaction has changed since does not commit. In between, every process may act.
//! * *Trimming.* It takes away what is recorded already, and no process reads that again.
//! * *Other segments.* Whose home another segment is matters to the spillover (`spillover.rs`), and
//!   so what happens to an order there that repair rejects here. That a home which lost a spillover
//!   under way counts it too low is the subject of `limit.rs`.
//! * *The epoch, the state, reacquisitions.* Nothing here depends on them. A reacquisition is
//!   another order.
//! * *`repair` that buyers see* and *the fence of the ledger's row* have no switch: without them
//!   the other rules keep all promises. The first one makes an end of repair possible while buyers
//!   crowd, the second one saves a round.
//!
//! # What is checked
//!
//! `properties.rs`: whatever the segment has, the ledger and the outbox explain, unless the
//! recorder has stopped or a repair runs; in a state of rest they are equal, answers and counts
//! included. The ledger covers what it holds. No buyer gets more than the limit. And from *every*
//! state one undisturbed reconciler brings both to rest. Then each rule is left out alone.

mod ledger;
mod properties;
mod repair;
mod rules;
mod scripts;
mod segment;
mod state;

use self::{
    ledger::Transfer,
    properties::{COVERED, EXPLAINED, LIMIT, REPAIRED},
    repair::Repairing,
    rules::Rules,
};
use crate::check::assert_sound;

const ONE_UNIT: Repairing = Repairing {
    rules: Rules::ALL,
    orders: 2,
    units: 1,
    limit: u8::MAX,
    transfer: Transfer::None,
    repairers: 1,
    failovers: 1,
    halts: 2,
    direct: false,
    drops: false,
};
const ONE_BUYER: Repairing = Repairing {
    units: 2,
    limit: 1,
    ..ONE_UNIT
};
const TWO_REPAIRERS: Repairing = Repairing {
    orders: 1,
    repairers: 2,
    ..ONE_UNIT
};
const TWO_FAILOVERS: Repairing = Repairing {
    orders: 1,
    failovers: 2,
    ..ONE_UNIT
};
const TOP_UP: Repairing = Repairing {
    orders: 1,
    units: 0,
    transfer: Transfer::ToCome,
    ..ONE_UNIT
};
const TAKE_BACK: Repairing = Repairing {
    orders: 1,
    transfer: Transfer::ToGo,
    ..ONE_UNIT
};

/// The recorder has what it records from memory. With one halt, for the number of states.
const FROM_MEMORY: Repairing = Repairing {
    direct: true,
    halts: 1,
    ..ONE_UNIT
};

sound! {
    whatever_is_recorded_from_memory_redis_and_the_ledger_agree: FROM_MEMORY, 100_000 states;
    a_buyer_stays_within_the_limit_whatever_is_recorded_from_memory:
        Repairing { units: 2, limit: 1, ..FROM_MEMORY }, 100_000 states;
}

refuted! {
    what_is_recorded_from_memory_behind_any_checkpoint_leaves_drift:
        FROM_MEMORY, without direct_record_continues_the_checkpoint => EXPLAINED;
}

sound! {
    whatever_a_failover_loses_redis_and_the_ledger_agree: ONE_UNIT, 300_000 states;
    a_second_failover_is_repaired_like_the_first: TWO_FAILOVERS, 100_000 states;
    two_repairers_do_not_disturb_each_other: TWO_REPAIRERS, 300_000 states;
    a_buyer_stays_within_the_limit_whatever_is_lost: ONE_BUYER, 300_000 states;
    a_unit_that_comes_is_there_once_whatever_is_lost: TOP_UP, 50_000 states;
    a_unit_that_goes_is_gone_once_whatever_is_lost: TAKE_BACK, 200_000 states;
}

/// As after a restore of the ledger, but at any moment.
#[test]
fn repairers_may_drop_what_the_segment_has_stored() {
    let sizes = [
        (ONE_UNIT, 300_000),
        (ONE_BUYER, 300_000),
        (TOP_UP, 50_000),
        (TAKE_BACK, 200_000),
    ];
    for (size, states) in sizes {
        let drops = true;
        assert_sound(Repairing { drops, ..size }, states);
    }
}

sound! {
    #[ignore = "3 million states"]
    two_repairers_and_two_orders_at_a_larger_size:
        Repairing { repairers: 2, ..ONE_UNIT }, 2_000_000 states;
    #[ignore = "3 million states"]
    two_repairers_three_times_at_a_larger_size:
        Repairing { halts: 3, ..TWO_REPAIRERS }, 2_000_000 states;
    #[ignore = "a million states"]
    two_failovers_and_two_orders_at_a_larger_size:
        Repairing { failovers: 2, ..ONE_UNIT }, 1_000_000 states;
}

refuted! {
    a_recorder_that_goes_on_without_its_anchor_records_what_is_not_there:
        ONE_UNIT, without recorder_checks_the_anchor => EXPLAINED;
    a_recorder_that_goes_on_over_any_adjusted_entry_leaves_drift:
        TAKE_BACK, without recorder_checks_the_adjusted_units => EXPLAINED;
    rounds_that_share_a_last_entry_mix_up: ONE_UNIT, without decides_on_its_own_halt => EXPLAINED;
    adjust_that_does_not_know_the_last_entry_sets_an_old_counter:
        ONE_UNIT, without adjust_knows_the_last_entry => EXPLAINED;
    /// With a last entry that no two rounds share, the token is a second lock on the same door:
    /// each of the two scripts needs one.
    adjust_that_knows_neither_token_nor_last_entry_sets_the_counter_of_who_is_late:
        TWO_REPAIRERS, without scripts_know_the_token, adjust_knows_the_last_entry => EXPLAINED;
    restore_that_knows_neither_token_nor_last_entry_brings_old_decisions:
        TWO_REPAIRERS, without scripts_know_the_token, restore_knows_the_last_entry => EXPLAINED;
    restore_that_does_not_know_the_last_entry_decides_for_orders_without_units:
        ONE_UNIT, without restore_knows_the_last_entry => REPAIRED;
    adjust_that_does_not_know_of_the_restore_opens_a_segment_that_has_forgotten_its_orders:
        TWO_FAILOVERS, without adjust_knows_of_the_restore => EXPLAINED;
    /// It needs one failover less: the halt itself has dropped them.
    adjust_that_does_not_know_of_the_restore_opens_a_segment_whose_orders_were_dropped:
        Repairing { orders: 1, drops: true, ..ONE_UNIT },
        without adjust_knows_of_the_restore => EXPLAINED;
    without_the_decisions_an_order_takes_again: ONE_UNIT, without decisions_restored => EXPLAINED;
    without_the_counts_of_those_who_hold_nothing_a_buyer_is_counted_for_ever:
        ONE_UNIT, without counts_restored => REPAIRED;
    without_the_transfers_a_unit_comes_twice: TOP_UP, without transfers_restored => EXPLAINED;
    without_the_transfers_one_that_went_out_unsatisfiable_never_ends:
        TAKE_BACK, without transfers_restored => REPAIRED;
    a_commit_without_the_version_loses_count_of_the_units:
        ONE_UNIT, without commit_knows_the_version => COVERED;
    without_the_limit_what_is_read_while_repairing_exceeds_it:
        ONE_BUYER, without limit_checked_when_repairing => LIMIT;
}
