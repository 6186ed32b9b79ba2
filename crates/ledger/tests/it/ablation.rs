//! Each safety check is needed: a test of this program fails without it.
//! `docs/safety.md` lists what would break.

use ablation::assert_needed_by;
use domain::SafetyCheck;

#[test]
fn the_version_check_is_needed() {
    assert_needed_by(
        SafetyCheck::VersionCheck,
        "life::of_concurrent_transitions_of_one_order_one_wins::sqlite",
    );
}

#[test]
fn the_limit_in_the_ledger_is_needed() {
    assert_needed_by(
        SafetyCheck::LimitInLedger,
        "limits::off_home_orders_are_held_against_the_limit::sqlite",
    );
}

#[test]
fn that_a_payment_pays_once_is_needed() {
    assert_needed_by(
        SafetyCheck::PaymentOnce,
        "life::a_payment_pays_the_order_that_it_was_reported_for_first::sqlite",
    );
}

#[test]
fn that_a_spent_payment_pays_nothing_is_needed() {
    assert_needed_by(
        SafetyCheck::PaymentSpent,
        "refunds::a_payment_that_was_returned_pays_nothing::sqlite",
    );
}

#[test]
fn the_fence_claim_is_needed() {
    assert_needed_by(
        SafetyCheck::FenceClaim,
        "transfers::only_the_highest_token_plans_and_finishes::sqlite",
    );
}
