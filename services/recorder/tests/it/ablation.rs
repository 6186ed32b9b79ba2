//! Each safety check is needed: a test of this program fails without it.
//! `docs/safety.md` lists what would break.

use ablation::assert_needed_by;
use domain::SafetyCheck;

#[test]
fn the_anchor_check_is_needed() {
    assert_needed_by(
        SafetyCheck::AnchorCheck,
        "history::an_entry_that_replaces_the_anchor_quarantines_its_segment_only::sqlite",
    );
}
