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

const SAGA: Saga = Saga { rules: Rules::ALL };

sound! {
    a_cart_is_sold_as_a_whole_or_not_at_all: SAGA, 10_000 states;
}

refuted! {
    with_a_row_that_comes_after_the_first_line_the_checker_finds_a_line_that_is_sold_alone:
        SAGA, without row_first => ALL_OR_NONE;
    with_a_payment_before_all_lines_are_held_the_checker_finds_a_half_sold_cart:
        SAGA, without pays_held_carts_only => ALL_OR_NONE;
    with_a_cart_that_is_held_before_its_lines_are_recorded_the_checker_finds_one_that_is_not:
        SAGA, without holds_recorded_lines_only => HELD;
    without_versions_the_checker_finds_a_half_sold_cart:
        SAGA, without versions_are_checked => ALL_OR_NONE;
    without_versions_the_checker_finds_an_extension_that_holds_a_cart_without_units:
        SAGA, without versions_are_checked => HELD;
    with_an_extension_of_some_lines_only_the_checker_finds_a_half_expired_cart:
        SAGA, without extends_every_line => HALF_EXPIRED;
    with_lines_that_expire_alone_the_checker_finds_a_held_cart_that_lacks_one:
        SAGA, without lines_wait_for_their_cart => HELD;
    with_a_payment_that_does_not_look_at_every_line_the_checker_then_finds_a_half_sold_cart:
        SAGA, without lines_wait_for_their_cart, pays_whole_carts_only => ALL_OR_NONE;
    without_a_deadline_the_checker_finds_a_cart_that_fails_for_no_reason:
        SAGA, without settles_at_the_deadline => IN_TIME;
    with_a_cart_that_is_forgotten_too_early_the_checker_finds_units_that_nobody_frees:
        SAGA, without looks_until_no_line_can_come => FREED;
    with_a_request_that_answers_for_another_the_checker_finds_units_that_nobody_frees:
        SAGA, without only_one_alone_settles => FREED;
    with_requests_that_take_at_any_time_the_checker_finds_units_that_nobody_frees:
        SAGA, without takes_end => FREED;
}
