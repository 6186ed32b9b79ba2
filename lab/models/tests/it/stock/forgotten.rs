//! The home check, checked in every interleaving: whatever home's server loses, home knows each
//! order of the ledger that another segment has, from the next mark on.
//!
//! # What is modelled
//!
//! An order whose home is empty is declined there. That leaves no outbox entry, so a failover that
//! loses it leaves home's anchor as it was. The other segment takes the order, and the ledger
//! records it. From then on home must answer every repeat.
//!
//! Home's hash holds a *mark*: the history under which its decisions were last compared with the
//! ledger. A failover begins another history. While the mark names another one, a reconciler waits
//! until the deadlines of all orders have passed that home may have declined before, then until the
//! ledger has what the other segment had at that time. Then it compares, repairs home if an order
//! is missing, and sets the mark once none is.
//!
//! What home keeps is a list of events, and a failover cuts off its end, the mark with it. A
//! message to the other segment is delivered at any time until its deadline, by a clock that may be
//! behind. A reconciler can crash anywhere, and another one begins again.
//!
//! *The door.* A process refuses by itself whom home does not know: from the sold-out cache, or
//! because the item does not sell. It reads the mark, then what home knows, then the mark again.
//! Only if both marks are of the same history, and no repair came in between, is a stranger a
//! stranger. Otherwise it looks for the order in the ledger and at the other segments.
//!
//! # What is left out, and why nothing is lost
//!
//! * *Units at home.* An order that home takes is in its outbox (`recovery.rs`).
//! * *Where a spillover ends.* `declined` and `elsewhere` both answer a repeat: a spillover that is
//!   repeated ends where it ended before (`spillover.rs`).
//! * *More segments, more homes.* Orders of other homes do not meet this one's. Other segments are
//!   waited for like the one here.
//! * *How the other segment is repaired.* It keeps what the ledger has of it (`recovery.rs`), and a
//!   failover of it loses the rest.

mod check;
mod properties;
mod state;

use self::{
    check::{HomeCheck, Rules},
    properties::{KNOWN, SETTLED, TOLD},
};

const CHECK: HomeCheck = HomeCheck {
    rules: Rules::ALL,
    orders: 2,
    failovers: 2,
    losses: 0,
    other_failovers: 0,
    door: false,
};
/// Home loses the key of its decisions, and keeps the one of its counter.
const LOST_KEYS: HomeCheck = HomeCheck {
    failovers: 1,
    losses: 1,
    ..CHECK
};
/// The other segment's server fails, too.
const BOTH_FAIL: HomeCheck = HomeCheck {
    failovers: 1,
    other_failovers: 1,
    ..CHECK
};

/// Repeats come to a door that refuses whom home does not know.
const DOOR: HomeCheck = HomeCheck {
    orders: 1,
    failovers: 1,
    losses: 1,
    door: true,
    ..CHECK
};

sound! {
    home_knows_every_order_of_the_ledger_whatever_its_server_loses: CHECK, 20_000 states;
    home_knows_every_order_of_the_ledger_whatever_keys_are_lost: LOST_KEYS, 20_000 states;
    home_knows_every_order_of_the_ledger_whatever_both_servers_lose: BOTH_FAIL, 20_000 states;
    no_order_of_the_ledger_is_refused_at_the_door: DOOR, 20_000 states;
}

refuted! {
    a_door_that_does_not_ask_for_the_mark_refuses_an_order:
        DOOR, without door_asks_for_the_mark => TOLD;
    a_door_that_reads_the_mark_only_afterwards_refuses_an_order:
        DOOR, without door_reads_the_mark_before => TOLD;
    a_door_that_reads_the_mark_only_before_refuses_an_order:
        DOOR, without door_reads_the_mark_after => TOLD;
    a_door_that_does_not_compare_the_histories_refuses_an_order:
        DOOR, without door_compares_the_history => TOLD;
    a_door_that_does_not_see_a_repair_refuses_an_order:
        DOOR, without door_compares_the_fence => TOLD;
}

sound! {
    #[ignore = "millions of states"]
    home_knows_every_order_of_the_ledger_at_a_larger_size:
        HomeCheck { losses: 1, other_failovers: 1, ..CHECK }, 1_000_000 states;
}

refuted! {
    without_the_comparison_home_does_not_know_an_order: CHECK, without orders_are_compared => KNOWN;
    without_waiting_for_the_deadlines_home_does_not_know_an_order:
        CHECK, without waits_for_deadlines => KNOWN;
    without_a_margin_for_the_clocks_home_does_not_know_an_order:
        CHECK, without margin_covers_the_clocks => KNOWN;
    without_waiting_for_the_recorder_home_does_not_know_an_order:
        CHECK, without waits_for_the_recorder => KNOWN;
    with_a_tail_that_was_read_before_the_deadlines_home_does_not_know_an_order:
        CHECK, without tail_is_read_after_the_deadlines => KNOWN;
    with_the_mark_before_the_comparison_home_does_not_know_an_order:
        CHECK, without mark_comes_last => KNOWN;
    with_a_mark_of_whatever_history_it_finds_home_does_not_know_an_order:
        CHECK, without mark_names_the_history_that_was_checked => KNOWN;
    /// A server that is promoted, replaced, and promoted again has its run id all the time.
    with_the_run_id_of_the_server_home_does_not_know_an_order:
        CHECK, without history_is_new_after_each_failover => KNOWN;
    with_a_mark_that_outlives_the_decisions_home_does_not_know_an_order:
        LOST_KEYS, without mark_goes_with_the_decisions => KNOWN;
    with_the_mark_of_a_late_reconciler_home_does_not_know_an_order:
        LOST_KEYS, without mark_is_fenced => KNOWN;
    without_a_new_start_after_the_others_failover_the_check_does_not_end:
        BOTH_FAIL, without begins_again_with_any_history => SETTLED;
}
