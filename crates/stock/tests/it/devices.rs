//! Each safety device is needed: a test of this program fails without it. `docs/safety-devices.md` says what breaks.

use devices::{Device, assert_needed_by};

#[test]
fn sticky_answers_are_needed() {
    assert_needed_by(
        Device::StickyAnswers,
        "selling::single::a_retry_after_a_unit_came_back_never_takes_a_second_one",
    );
}

#[test]
fn the_limit_at_home_is_needed() {
    assert_needed_by(
        Device::LimitAtHome,
        "selling::single::a_buyer_never_holds_more_than_the_limit",
    );
}
