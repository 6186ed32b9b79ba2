//! Each safety check of this crate is necessary: a test of this program fails without it.
//! `docs/safety.md` says what breaks.
//!
//! The checks of the scripts are lines of Lua. The patches that disable them stand here, and
//! [`install`] hands them to the scripts before the first one is loaded.

use ablation::assert_needed_by;
use domain::SafetyCheck;

/// Has every script that this process loads pass through [`patched`].
pub fn install() {
    domain::patch_scripts(patched);
}

/// The source of the script `name`, without the check that this process has disabled.
fn patched(name: &str, source: &'static str) -> &'static str {
    match name {
        "reserve_home" | "reserve_next" if !SafetyCheck::RecordedDecision.is_enabled() => {
            // A segment that declined an order decides again when it is tried again.
            let line = "  local code, detail = nil, ''\n";
            let ignored = "  if decision and string.byte(decision) == string.byte('D') then \
                           decision = nil end\n";
            let source = replaced(source, line, &format!("{ignored}{line}"));
            // And may overwrite what it has decided.
            replaced(source, " < decisions_n / 2 then", " < 0 then")
        }
        "reserve_home" if !SafetyCheck::LimitAtHome.is_enabled() => replaced(
            source,
            "if limit > 0 and count > limit then",
            "if false then",
        ),
        // The keys go, and nothing stands in their place.
        "archive_segment" if !SafetyCheck::Tombstone.is_enabled() => replaced(
            source,
            "redis.call('HSET', stock, 'state', ARCHIVED, 'epoch', LAST_EPOCH, 'fence', LAST_FENCE)\n",
            "",
        ),
        _ => source,
    }
}

fn replaced(source: &str, line: &str, by: &str) -> &'static str {
    assert_eq!(
        source.matches(line).count(),
        1,
        "expected one line {line:?}"
    );
    Box::leak(source.replace(line, by).into_boxed_str())
}

#[test]
fn recorded_decisions_are_needed() {
    assert_needed_by(
        SafetyCheck::RecordedDecision,
        "selling::a_retry_after_a_unit_came_back_never_takes_a_second_one::single",
    );
}

#[test]
fn the_proof_of_sold_out_is_needed() {
    assert_needed_by(
        SafetyCheck::SoldOutProof,
        "proof::a_unit_on_its_way_is_waited_for::single",
    );
}

#[test]
fn the_limit_at_home_is_needed() {
    assert_needed_by(
        SafetyCheck::LimitAtHome,
        "selling::a_buyer_never_holds_more_than_the_limit::single",
    );
}

#[test]
fn the_tombstone_is_needed() {
    assert_needed_by(
        SafetyCheck::Tombstone,
        "scripts::archive::a_process_that_comes_late_sells_nothing_of_an_archived_item::single",
    );
}

#[test]
fn the_settlement_is_needed() {
    assert_needed_by(
        SafetyCheck::Settlement,
        "spillovers::a_buyer_whose_order_was_abandoned_may_buy_again::single",
    );
}

#[test]
fn that_an_unchecked_home_is_not_trusted_is_needed() {
    assert_needed_by(
        SafetyCheck::CheckedHome,
        "unchecked::a_new_process_does_not_trust_an_unchecked_home::single",
    );
}
