//! Each safety device is needed: a test of this program fails without it. `docs/safety-devices.md` says what breaks.

use devices::{Device, assert_needed_by};

#[test]
fn the_version_check_is_needed() {
    assert_needed_by(
        Device::VersionCheck,
        "life::sqlite::of_many_who_move_one_order_one_does",
    );
}

#[test]
fn the_limit_in_the_ledger_is_needed() {
    assert_needed_by(
        Device::LimitInLedger,
        "limits::sqlite::what_strayed_is_held_against_the_limit",
    );
}

#[test]
fn the_fence_claim_is_needed() {
    assert_needed_by(
        Device::FenceClaim,
        "transfers::sqlite::only_the_authority_plans_and_finishes",
    );
}
