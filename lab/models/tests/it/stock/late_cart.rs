//! Carts that are paid late, checked in every interleaving: an expired cart takes the units of
//! every line again, or of none.
//!
//! An expired cart of two lines whose units may still be returning, two reports of one payment or
//! of two, a rival who wants the same units, a recorder that is behind, and an expirer that acts on
//! what it has read before. A report may be paused between any two steps, go on much later, or
//! never and be repeated: that is a crash.
//!
//! The rules are in [`reports::Rules`]. Each is left out alone, and the checker must find a cart in
//! parts, a sold one without its units, a payment that was acknowledged and is forgotten, money
//! that is due although the units were there, or units that are never free again.
//!
//! Left out: whether a payment may be bound (`payment`), quantities, the ring of segments
//! (`spillover.rs`), and what comes before the cart expires (`cart.rs`) and after it is paid.

mod properties;
mod reports;

use self::{
    properties::{ALL_OR_NONE, DUE, FREED, KEPT, SOLD},
    reports::{ATTEMPTS_MAX, LateCart, Rules},
};
use crate::check::{assert_sound, find_counterexample};

/// Two reports of one payment, or of two.
const PAYMENTS: [[usize; 2]; 2] = [[0, 0], [0, 1]];

fn assert_sound_with(attempts: u8, at_least: usize) {
    for payments in PAYMENTS {
        let late = LateCart {
            rules: Rules::ALL,
            payments,
            attempts,
        };
        assert_sound(late, at_least);
    }
}

#[test]
fn a_cart_that_is_paid_late_takes_the_units_of_every_line_or_of_none() {
    assert_sound_with(1, 10_000);
}

#[test]
#[ignore = "millions of states: for `make model`"]
fn a_cart_that_is_paid_late_twice_takes_the_units_of_every_line_or_of_none() {
    assert_sound_with(ATTEMPTS_MAX, 1_000_000);
}

/// Of two payments. [`find_for_all_payments`] replaces them.
const LATE: LateCart = LateCart {
    rules: Rules::ALL,
    payments: [0, 1],
    attempts: ATTEMPTS_MAX,
};

fn find_for_all_payments(late: LateCart, property: &'static str) {
    for payments in PAYMENTS {
        find_counterexample(LateCart { payments, ..late }, property);
    }
}

refuted! {
    by find_for_all_payments;
    with_a_cart_that_is_confirmed_before_its_lines_are_held_the_checker_finds_a_half_sold_one:
        LATE, without confirms_held_lines_only => ALL_OR_NONE;
    without_the_version_of_the_cart_the_checker_finds_a_cart_in_parts:
        LATE, without cart_version_is_checked => ALL_OR_NONE;
}

refuted! {
    without_the_version_of_the_cart_the_checker_finds_a_forgotten_payment:
        LATE, without cart_version_is_checked => KEPT;
}

refuted! {
    by find_for_all_payments;
    without_the_versions_of_lines_the_checker_finds_a_sold_cart_without_its_units:
        LATE, without line_versions_are_checked => SOLD;
    with_held_lines_that_a_refund_leaves_alone_the_checker_finds_a_cart_in_parts:
        LATE, without refund_frees_held_lines => ALL_OR_NONE;
    with_a_late_take_that_holds_the_checker_finds_a_cart_in_parts:
        LATE, without late_takes_go_back => ALL_OR_NONE;
    with_held_lines_that_wait_for_an_expired_cart_the_checker_finds_units_that_are_never_free:
        LATE, without held_lines_expire_alone => FREED;
    with_a_report_that_takes_what_the_cart_has_the_checker_finds_money_that_is_due_for_no_reason:
        LATE, without takes_missing_lines_only => DUE;
    with_units_that_return_later_the_checker_finds_money_that_is_due_for_no_reason:
        LATE, without returns_first => DUE;
}
