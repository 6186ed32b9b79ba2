//! Mending, checked in every interleaving: whatever Redis loses, and whoever crashes while mending, Redis and the ledger agree in the end.
//!
//! # What is modelled
//!
//! One segment, which is also its buyers' home, and its ledger row. The segment is kept as its history (`segment.rs`), so a failover is to any
//! shorter history, also to none, at any moment, also in the middle of mending. Between any two atomic steps anything may happen:
//!
//! * Orders take, are cancelled in the ledger, and give back. A `release` that was sent is delivered at any time, again, or never.
//! * The recorder reads and commits in two steps, up to the next entry or up to the last one, and crashes in between.
//! * One or two reconcilers mend: claim, halt, read and decide, restore, adjust, commit. Each stops anywhere for good, or goes on much later, or begins
//!   again under the same token because it did not hear an answer. `halt_segment`, `restore_orders` and `adjust` of an earlier round may still arrive, and again.
//!   They begin whenever they like, also when nothing is wrong: so it does not matter how well drift is recognised.
//! * A transfer of a unit to the segment or from it, sent by any reconciler, delivered at any time, again, or never.
//! * Somebody opens a segment that does not exist any more with all its units, as if it were new.
//!
//! # What is left out, and why nothing is lost
//!
//! * *Row locks.* A lock is modelled as what it guarantees: who decided on a row that somebody has changed since does not commit. In
//!   between, everybody may do what he likes.
//! * *Trimming.* It takes away what is recorded already, and of that nobody reads anything.
//! * *Other segments.* Whose home another segment is matters to the walk (`walk.rs`), and so what happens to an order there that mending
//!   rejects here. That a home which lost a walk under way counts it too low is the subject of `limit.rs`.
//! * *The epoch, the state, retakes.* Nothing here goes by them. A retake is another order.
//! * *`mending` that buyers see* and *the fence of the ledger's row* have no switch: without them the other rules keep all
//!   promises. The first one makes an end of mending possible while buyers crowd, the second one spares everybody a round.
//!
//! # What is checked
//!
//! `properties.rs`: whatever the segment has, the ledger and the outbox explain, unless the recorder has stopped or somebody mends; in a state of rest
//! they are equal, answers and counts included. The ledger covers what it holds. Nobody gets more than the limit. And from *every*
//! state one undisturbed reconciler brings both to rest. Then each rule is left out alone.

mod ledger;
mod mending;
mod properties;
mod rules;
mod scripts;
mod segment;
mod state;

use self::{
    ledger::Transfer,
    mending::Mending,
    properties::{COVERED, EXPLAINED, LIMIT, MENDED},
    rules::Rules,
};
use super::check::{assert_sound, find_counterexample};

const ONE_UNIT: Mending = Mending {
    rules: Rules::ALL,
    orders: 2,
    units: 1,
    limit: u8::MAX,
    transfer: Transfer::None,
    menders: 1,
    failovers: 1,
    halts: 2,
};
const ONE_BUYER: Mending = Mending {
    units: 2,
    limit: 1,
    ..ONE_UNIT
};
const TWO_MENDERS: Mending = Mending {
    orders: 1,
    menders: 2,
    ..ONE_UNIT
};
const TWO_FAILOVERS: Mending = Mending {
    orders: 1,
    failovers: 2,
    ..ONE_UNIT
};
const TOP_UP: Mending = Mending {
    orders: 1,
    units: 0,
    transfer: Transfer::ToCome,
    ..ONE_UNIT
};
const TAKE_BACK: Mending = Mending {
    orders: 1,
    transfer: Transfer::ToGo,
    ..ONE_UNIT
};

#[test]
fn whatever_a_failover_loses_redis_and_the_ledger_agree() {
    assert_sound(ONE_UNIT, 300_000);
}

#[test]
fn a_second_failover_is_mended_like_the_first() {
    assert_sound(TWO_FAILOVERS, 100_000);
}

#[test]
fn two_who_mend_do_not_disturb_each_other() {
    assert_sound(TWO_MENDERS, 300_000);
}

#[test]
fn a_buyer_stays_within_the_limit_whatever_is_lost() {
    assert_sound(ONE_BUYER, 300_000);
}

#[test]
fn a_unit_that_comes_is_there_once_whatever_is_lost() {
    assert_sound(TOP_UP, 50_000);
}

#[test]
fn a_unit_that_goes_is_gone_once_whatever_is_lost() {
    assert_sound(TAKE_BACK, 200_000);
}

#[test]
#[ignore = "3 million states"]
fn two_who_mend_and_two_orders_at_a_larger_size() {
    assert_sound(
        Mending {
            menders: 2,
            ..ONE_UNIT
        },
        2_000_000,
    );
}

#[test]
#[ignore = "3 million states"]
fn two_who_mend_three_times_at_a_larger_size() {
    assert_sound(
        Mending {
            halts: 3,
            ..TWO_MENDERS
        },
        2_000_000,
    );
}

#[test]
#[ignore = "a million states"]
fn two_failovers_and_two_orders_at_a_larger_size() {
    assert_sound(
        Mending {
            failovers: 2,
            ..ONE_UNIT
        },
        1_000_000,
    );
}

#[test]
fn a_recorder_that_goes_on_without_its_anchor_records_what_is_not_there() {
    let rules = Rules {
        recorder_checks_the_anchor: false,
        ..Rules::ALL
    };
    find_counterexample(Mending { rules, ..ONE_UNIT }, EXPLAINED);
}

#[test]
fn a_recorder_that_goes_on_over_any_adjusted_entry_leaves_drift() {
    let rules = Rules {
        recorder_checks_the_adjusted_units: false,
        ..Rules::ALL
    };
    find_counterexample(Mending { rules, ..TAKE_BACK }, EXPLAINED);
}

#[test]
fn rounds_that_share_a_last_entry_mix_up() {
    let rules = Rules {
        decides_on_its_own_halt: false,
        ..Rules::ALL
    };
    find_counterexample(Mending { rules, ..ONE_UNIT }, EXPLAINED);
}

#[test]
fn adjust_that_does_not_know_the_last_entry_sets_an_old_counter() {
    let rules = Rules {
        adjust_knows_the_last_entry: false,
        ..Rules::ALL
    };
    find_counterexample(Mending { rules, ..ONE_UNIT }, EXPLAINED);
}

/// With a last entry that no two rounds share, the token is a second lock on the same door: each of the two scripts needs one.
#[test]
fn adjust_that_knows_neither_token_nor_last_entry_sets_the_counter_of_who_is_late() {
    let rules = Rules {
        scripts_know_the_token: false,
        adjust_knows_the_last_entry: false,
        ..Rules::ALL
    };
    find_counterexample(
        Mending {
            rules,
            ..TWO_MENDERS
        },
        EXPLAINED,
    );
}

#[test]
fn restore_that_knows_neither_token_nor_last_entry_brings_old_answers() {
    let rules = Rules {
        scripts_know_the_token: false,
        restore_knows_the_last_entry: false,
        ..Rules::ALL
    };
    find_counterexample(
        Mending {
            rules,
            ..TWO_MENDERS
        },
        EXPLAINED,
    );
}

#[test]
fn restore_that_does_not_know_the_last_entry_answers_for_orders_that_nobody_has() {
    let rules = Rules {
        restore_knows_the_last_entry: false,
        ..Rules::ALL
    };
    find_counterexample(Mending { rules, ..ONE_UNIT }, MENDED);
}

#[test]
fn adjust_that_does_not_know_of_the_restore_opens_a_segment_that_has_forgotten_its_orders() {
    let rules = Rules {
        adjust_knows_of_the_restore: false,
        ..Rules::ALL
    };
    find_counterexample(
        Mending {
            rules,
            ..TWO_FAILOVERS
        },
        EXPLAINED,
    );
}

#[test]
fn without_the_answers_an_order_takes_again() {
    let rules = Rules {
        answers_restored: false,
        ..Rules::ALL
    };
    find_counterexample(Mending { rules, ..ONE_UNIT }, EXPLAINED);
}

#[test]
fn without_the_counts_of_those_who_hold_nothing_a_buyer_is_counted_for_ever() {
    let rules = Rules {
        counts_restored: false,
        ..Rules::ALL
    };
    find_counterexample(Mending { rules, ..ONE_UNIT }, MENDED);
}

#[test]
fn without_the_transfers_a_unit_comes_twice() {
    let rules = Rules {
        transfers_restored: false,
        ..Rules::ALL
    };
    find_counterexample(Mending { rules, ..TOP_UP }, EXPLAINED);
}

#[test]
fn without_the_transfers_one_that_went_out_in_vain_never_ends() {
    let rules = Rules {
        transfers_restored: false,
        ..Rules::ALL
    };
    find_counterexample(Mending { rules, ..TAKE_BACK }, MENDED);
}

#[test]
fn a_commit_without_the_version_loses_count_of_the_units() {
    let rules = Rules {
        commit_knows_the_version: false,
        ..Rules::ALL
    };
    find_counterexample(Mending { rules, ..ONE_UNIT }, COVERED);
}

#[test]
fn without_the_limit_what_is_read_while_mending_exceeds_it() {
    let rules = Rules {
        limit_checked_when_mending: false,
        ..Rules::ALL
    };
    find_counterexample(Mending { rules, ..ONE_BUYER }, LIMIT);
}
