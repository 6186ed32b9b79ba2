//! Each safety check is needed: a test of this program fails without it.
//! `docs/safety.md` lists what would break.

use ablation::assert_needed_by;
use domain::SafetyCheck;

#[test]
fn the_home_check_is_needed() {
    assert_needed_by(
        SafetyCheck::HomeCheck,
        "forgotten::a_home_that_lost_its_declines_still_answers_repeats::sqlite",
    );
}

#[test]
fn the_clock_check_is_needed() {
    assert_needed_by(
        SafetyCheck::ClockCheck,
        "expiry::a_reconciler_whose_clock_runs_ahead_ends_no_hold_before_its_time::sqlite",
    );
}

#[test]
fn the_comparison_with_the_audit_is_needed() {
    assert_needed_by(
        SafetyCheck::AuditCompare,
        "archiving::an_item_that_changes_after_its_audit_is_not_archived::sqlite",
    );
}

#[test]
fn the_comparison_with_the_export_is_needed() {
    assert_needed_by(
        SafetyCheck::DropCompare,
        "dropping::a_row_that_has_changed_since_its_export_stays_for_the_next_one::sqlite",
    );
}
