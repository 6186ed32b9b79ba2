//! Carts, checked in every interleaving: a cart is sold as a whole or not at all.
//!
//! A cart of two lines, the request that places it and a repeat of it at another instance, a rival
//! who wants the same units, a recorder that is behind, a provider that reports a payment, a buyer
//! who cancels the cart or extends its holds, and a reconciler. Each of them may be paused between
//! any two steps and go on much later, or never: that is a crash. What was read may be out of date
//! when it is acted on.
//!
//! The rules are in [`saga::Rules`]. Each is left out alone, and the checker must find a cart that
//! is half sold or half expired, a cart that fails too early, or units that only the end of their
//! hold frees.
//!
//! Left out: quantities (a line is refused or not), the ring of segments (`spillover.rs`), and a
//! Redis that loses writes (`recovery.rs`): a cart is `held` by the ledger's orders, and not by
//! what Redis has answered.

mod properties;
mod saga;

use self::{
    properties::{ALL_OR_NONE, FREED, HALF_EXPIRED, HELD, IN_TIME},
    saga::{Rules, Saga},
};
use crate::check::{assert_sound, find_counterexample};

const SAGA: Saga = Saga { rules: Rules::ALL };

#[test]
fn a_cart_is_sold_as_a_whole_or_not_at_all() {
    assert_sound(SAGA, 10_000);
}

fn without(weaken: impl FnOnce(&mut Rules), property: &'static str) {
    let mut rules = Rules::ALL;
    weaken(&mut rules);
    find_counterexample(Saga { rules }, property);
}

#[test]
fn with_a_row_that_comes_after_the_first_line_the_checker_finds_a_line_that_is_sold_alone() {
    without(|rules| rules.row_first = false, ALL_OR_NONE);
}

#[test]
fn with_a_payment_before_all_lines_are_held_the_checker_finds_a_half_sold_cart() {
    without(|rules| rules.pays_held_carts_only = false, ALL_OR_NONE);
}

#[test]
fn with_a_cart_that_is_held_before_its_lines_are_recorded_the_checker_finds_one_that_is_not() {
    without(|rules| rules.holds_recorded_lines_only = false, HELD);
}

#[test]
fn without_versions_the_checker_finds_a_half_sold_cart() {
    without(|rules| rules.versions_are_checked = false, ALL_OR_NONE);
}

#[test]
fn without_versions_the_checker_finds_an_extension_that_holds_a_cart_without_units() {
    without(|rules| rules.versions_are_checked = false, HELD);
}

#[test]
fn with_an_extension_of_some_lines_only_the_checker_finds_a_half_expired_cart() {
    without(|rules| rules.extends_every_line = false, HALF_EXPIRED);
}

#[test]
fn with_lines_that_expire_alone_the_checker_finds_a_held_cart_that_lacks_one() {
    without(|rules| rules.lines_wait_for_their_cart = false, HELD);
}

#[test]
fn with_a_payment_that_does_not_look_at_every_line_the_checker_then_finds_a_half_sold_cart() {
    let weaken = |rules: &mut Rules| {
        rules.lines_wait_for_their_cart = false;
        rules.pays_whole_carts_only = false;
    };
    without(weaken, ALL_OR_NONE);
}

#[test]
fn without_a_deadline_the_checker_finds_a_cart_that_fails_for_no_reason() {
    without(|rules| rules.settles_at_the_deadline = false, IN_TIME);
}

#[test]
fn with_a_cart_that_is_forgotten_too_early_the_checker_finds_units_that_nobody_frees() {
    without(|rules| rules.looks_until_no_line_can_come = false, FREED);
}

#[test]
fn with_a_request_that_answers_for_another_the_checker_finds_units_that_nobody_frees() {
    without(|rules| rules.only_one_alone_settles = false, FREED);
}

#[test]
fn with_requests_that_take_at_any_time_the_checker_finds_units_that_nobody_frees() {
    without(|rules| rules.takes_end = false, FREED);
}
