//! A payment, checked in every order of reports: money that was returned stays returned.
//!
//! One payment, an order and a cart that it may be reported for, with the right total or another
//! one. A report is a request of several transactions, and may be paused between any two of them,
//! repeated, or come beside another one. The provider returns the money and reports it before or
//! after everything else, with or without a name, and its refund may fail later. An admin notes
//! rows of the list of money that is due as returned, long after they were read, and returns the
//! money of what was paid. Holds end and are cancelled, and a late payment takes units again or
//! finds none.
//!
//! The rules are in [`money::Rules`]. Each is left out alone, and the checker must find money that
//! was returned and confirms something, a payment that pays twice, money that is due twice or has
//! paid something and is due as well, or money that the buyer is owed and no list shows.
//!
//! The order and the cart follow the same rules, so two of them stand for any number. One step
//! differs: an order that takes units again is held before it is confirmed, and a cart is confirmed
//! when all of its lines are held. Left out: partial refunds, which change the amount that is due
//! and move no payment (`crates/ledger` tests them), and units (`stock`, and `stock/late_cart` for
//! those of a cart). This is the whole model: it takes a second, so `make model` has no larger
//! size.

mod money;
mod properties;

use self::{
    money::{Payment, Rules},
    properties::{ASKED_ONCE, FAILED, KEPT, ONCE, RETURNED},
};

const PAYMENT: Payment = Payment { rules: Rules::ALL };

sound! {
    money_that_was_returned_confirms_nothing: PAYMENT, 50_000 states;
}

refuted! {
    with_a_returned_payment_that_can_be_taken_the_checker_finds_it_confirming:
        PAYMENT, without spent_is_never_bound => RETURNED;
    with_a_payment_that_is_bound_twice_the_checker_finds_two_that_it_has_paid:
        PAYMENT, without is_bound_once => ONCE;
    with_a_payment_that_is_bound_before_its_step_the_checker_finds_a_return_between_them:
        PAYMENT, without binds_with_the_step => RETURNED;
    with_a_row_that_is_noted_as_it_was_read_the_checker_finds_it_confirmed_since:
        PAYMENT, without done_looks_again => RETURNED;
    with_a_noted_row_that_spends_nothing_the_checker_finds_the_payment_confirming:
        PAYMENT, without done_spends => RETURNED;
    with_a_noted_row_that_spends_what_another_has_taken_the_checker_finds_that_confirmed:
        PAYMENT, without done_spares_another => RETURNED;
    with_a_return_that_is_forgotten_because_it_comes_first_the_checker_finds_a_confirmation:
        PAYMENT, without first_return_is_kept => RETURNED;
    with_a_return_that_passes_over_a_noted_payment_the_checker_finds_a_confirmation:
        PAYMENT, without noted_payment_is_spent => RETURNED;
    with_a_return_that_is_acknowledged_too_early_the_checker_finds_a_confirmed_order:
        PAYMENT, without refunds_before_answer => RETURNED;
    /// Each of the two guards alone: a list that hides what has paid another does not show it
    /// either.
    with_an_admin_who_returns_and_spends_nothing_the_checker_finds_money_due_twice:
        PAYMENT, without refund_spends, list_hides_another => ASKED_ONCE;
    with_a_list_that_shows_returned_payments_the_checker_finds_money_due_twice:
        PAYMENT, without list_hides_returned => ASKED_ONCE;
    with_a_list_that_shows_what_has_paid_another_the_checker_finds_it_due_while_that_is_confirmed:
        PAYMENT, without list_hides_another => KEPT;
    with_a_refused_report_that_is_not_noted_the_checker_finds_money_that_no_list_shows:
        PAYMENT, without refused_is_noted => KEPT;
    with_a_first_return_that_no_report_claims_the_checker_finds_a_failed_refund_that_no_list_shows:
        PAYMENT, without report_claims_return => FAILED;
}
