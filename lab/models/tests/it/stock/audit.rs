//! What an audit may say of orders that it does not read, checked in every interleaving.
//!
//! A full audit takes one snapshot of the ledger: the rows of the segments, and then the orders,
//! piece by piece. Meanwhile orders are recorded, end and are reacquired, each with its row in one
//! transaction. Two full audits may run at once, begin late, and crash between any two steps. What
//! they have found is noted in the ledger, late or never. An audit without a walk tells of it at
//! any moment.
//!
//! An operator changes an order by hand, without its row, and may mend it. That is the only way in
//! which orders and rows can come to differ, and a full audit must find it.
//!
//! Each rule is left out alone. The checker must find a false alarm, a fault that a full audit
//! misses, a fault that is not told any more, or `current` for rows that no full audit has
//! compared.
//!
//! An audit by what has changed reads no order that has not (`changes.rs`). It goes on from the sums
//! of an earlier snapshot, and the events behind it name the orders that have changed. Transactions
//! overlap, get their ids early, commit late or roll back, and one of them forgets the row of its
//! order. Then such an audit must not be good, so the next one is a full one. One that finds a
//! difference where there is none would cost a needless walk. An order that is changed by hand has no
//! event: only a full audit finds it.
//!
//! Left out: Redis. What its counters say is compared with the rows in every audit, and needs no
//! order. Clocks are one clock: a fault is dated by the same process that has found it, and a
//! process whose clock is behind can leave a fault standing for longer, or take one back that was
//! found within the difference.

mod changes;
mod walks;

use self::{
    changes::Changes,
    walks::{CURRENT_IS_TRUE, FAULT_STANDS, NO_FALSE_ALARM, NONE_MISSED, Rules, Walks},
};

const TWO_WALKS: Walks = Walks {
    rules: Rules::ALL,
    walks: 2,
};

sound! {
    an_audit_without_a_walk_says_nothing_that_a_full_one_contradicts: TWO_WALKS, 350_000 states;
    #[ignore = "millions of states"]
    an_audit_without_a_walk_says_nothing_that_a_full_one_contradicts_at_a_larger_size:
        Walks { walks: 3, ..TWO_WALKS }, 1_000_000 states;
}

refuted! {
    with_pieces_of_different_moments_the_checker_finds_a_false_alarm:
        TWO_WALKS, without pieces_share_a_snapshot => NO_FALSE_ALARM;
    with_pieces_of_different_moments_the_checker_finds_a_fault_that_is_missed:
        TWO_WALKS, without pieces_share_a_snapshot => NONE_MISSED;
    with_rows_of_another_moment_the_checker_finds_a_false_alarm:
        TWO_WALKS, without rows_are_of_the_snapshot => NO_FALSE_ALARM;
    with_a_row_that_changes_after_its_order_the_checker_finds_a_false_alarm:
        TWO_WALKS, without order_and_row_change_together => NO_FALSE_ALARM;
    with_a_walk_that_is_good_before_its_end_the_checker_finds_a_fault_that_is_missed:
        TWO_WALKS, without only_a_whole_walk_is_good => NONE_MISSED;
    with_counters_for_a_revision_the_checker_finds_orders_that_have_changed:
        TWO_WALKS, without every_change_moves_the_revision => CURRENT_IS_TRUE;
    with_the_revision_of_rows_that_were_not_compared_the_checker_finds_orders_that_have_changed:
        TWO_WALKS, without revision_is_of_the_snapshot => CURRENT_IS_TRUE;
    with_a_fault_that_is_not_noted_the_checker_finds_an_audit_that_hides_it:
        TWO_WALKS, without faults_are_noted => FAULT_STANDS;
    with_a_result_that_any_later_note_replaces_the_checker_finds_an_audit_that_hides_a_fault:
        TWO_WALKS, without good_is_dated_by_its_beginning => FAULT_STANDS;
    with_a_fault_that_is_dated_by_its_beginning_the_checker_finds_an_audit_that_hides_it:
        TWO_WALKS, without fault_is_dated_by_its_end => FAULT_STANDS;
    with_a_fault_beside_rows_that_are_called_current_the_checker_finds_a_contradiction:
        TWO_WALKS, without nothing_is_current_beside_a_fault => CURRENT_IS_TRUE;
}

const THREE_CHANGES: Changes = Changes {
    rules: changes::Rules::ALL,
    transactions: 3,
};

sound! {
    an_audit_by_what_has_changed_finds_what_a_full_one_finds: THREE_CHANGES, 100_000 states;
    #[ignore = "millions of states"]
    an_audit_by_what_has_changed_finds_what_a_full_one_finds_at_a_larger_size:
        Changes { transactions: 4, ..THREE_CHANGES }, 1_000_000 states;
}

refuted! {
    with_events_from_the_end_of_the_snapshot_the_checker_finds_a_fault_that_is_missed:
        THREE_CHANGES, without events_begin_at_the_oldest_open_transaction => changes::NONE_MISSED;
    with_events_that_count_twice_the_checker_finds_a_fault_that_is_missed:
        THREE_CHANGES, without seen_events_are_passed_over => changes::NONE_MISSED;
    with_events_in_the_order_of_ids_the_checker_finds_a_needless_walk:
        THREE_CHANGES, without positions_follow_what_has_ended => changes::NO_NEEDLESS_WALK;
    with_the_last_event_of_an_order_the_checker_finds_a_needless_walk:
        THREE_CHANGES, without the_first_event_counts => changes::NO_NEEDLESS_WALK;
    with_reacquired_orders_the_checker_finds_a_needless_walk:
        THREE_CHANGES, without reacquired_orders_are_walked => changes::NO_NEEDLESS_WALK;
    with_refunds_of_orders_without_units_the_checker_finds_a_needless_walk:
        THREE_CHANGES, without refunds_of_due_orders_are_walked => changes::NO_NEEDLESS_WALK;
    with_events_that_were_removed_the_checker_finds_a_fault_that_is_missed:
        THREE_CHANGES, without removed_events_are_walked => changes::NONE_MISSED;
    with_events_of_an_earlier_moment_the_checker_finds_a_fault_that_is_missed:
        THREE_CHANGES, without events_are_of_the_snapshot => changes::NONE_MISSED;
    with_sums_that_move_alone_the_checker_finds_a_fault_that_is_missed:
        THREE_CHANGES, without the_place_moves_with_the_sums => changes::NONE_MISSED;
}
