//! A flash sale: many buyers, and far fewer units.

use crate::{
    behaviors::{ONE_UNIT, OVER_THE_LIMIT, REPEATS, TWO_UNITS},
    return_policy::ReturnPolicy,
    scenario::Scenario,
};

/// Most order one unit. Some repeat the request, order two units, or exceed the limit.
pub static RUSH: Scenario = Scenario {
    name: "rush",
    policy: ReturnPolicy::Final,
    pays: false,
    must_resell: false,
    behaviors: &[
        (65, ONE_UNIT),
        (15, REPEATS),
        (10, TWO_UNITS),
        (10, OVER_THE_LIMIT),
    ],
};
