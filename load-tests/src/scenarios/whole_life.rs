//! The life of an order: paid, cancelled, or left until its hold expires.

use crate::{
    behaviors::{CANCELS, EXPIRES, PAYS, PAYS_LATE},
    return_policy::ReturnPolicy,
    scenario::Scenario,
};

/// Most buyers pay. Holds are short, so that abandoned units return during the run.
pub static WHOLE_LIFE: Scenario = Scenario {
    name: "whole-life",
    policy: ReturnPolicy::Expiring,
    pays: true,
    must_resell: false,
    behaviors: &[(50, PAYS), (25, CANCELS), (20, EXPIRES), (5, PAYS_LATE)],
};
