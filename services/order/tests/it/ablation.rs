//! Each safety check is needed: a test of this program fails without it.
//! `docs/safety.md` lists what would break.

use ablation::assert_needed_by;
use domain::SafetyCheck;

#[test]
fn the_bound_of_connections_is_needed() {
    assert_needed_by(
        SafetyCheck::ConnectionBound,
        "limits::silent_connections_above_the_bound_are_closed_beside_requests",
    );
}
