//! Each safety device is needed: a test of this program fails without it. `docs/safety-devices.md` says what breaks.

use devices::{Device, assert_needed_by};

#[test]
fn the_anchor_check_is_needed() {
    assert_needed_by(
        Device::AnchorCheck,
        "history::sqlite::another_entry_in_the_place_of_the_anchor_stops_its_segment_and_no_other",
    );
}
