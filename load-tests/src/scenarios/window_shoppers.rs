//! Visitors who mostly show the item, so most requests are reads.

use crate::{
    behaviors::{BROWSER, LOOKS_AND_BUYS, ONE_UNIT},
    return_policy::ReturnPolicy,
    scenario::Scenario,
};

/// Most only show the item. Buyers poll their order, and another buyer tries to show it.
pub static WINDOW_SHOPPERS: Scenario = Scenario {
    name: "window-shoppers",
    policy: ReturnPolicy::Final,
    pays: false,
    must_resell: false,
    behaviors: &[(60, BROWSER), (30, LOOKS_AND_BUYS), (10, ONE_UNIT)],
};
