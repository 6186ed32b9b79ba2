//! Each safety check is needed: a test of this program fails without it.
//! `docs/safety.md` lists what would break.

use ablation::assert_needed_by;
use domain::SafetyCheck;

#[test]
fn the_home_check_is_needed() {
    assert_needed_by(
        SafetyCheck::HomeCheck,
        "forgotten::sqlite::a_home_that_lost_its_declines_still_answers_repeats",
    );
}
