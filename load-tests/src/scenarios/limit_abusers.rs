//! Buyers who try to exceed the limit: one order after another, concurrently, and with one order.

use crate::{
    behaviors::{CONCURRENT_ORDERS, GREEDY, OVER_THE_LIMIT},
    return_policy::ReturnPolicy,
    scenario::Scenario,
};

/// No buyer may end with more units than the limit, and none below it may be refused because of it.
pub static LIMIT_ABUSERS: Scenario = Scenario {
    name: "limit-abusers",
    policy: ReturnPolicy::Final,
    pays: false,
    must_resell: false,
    behaviors: &[(40, OVER_THE_LIMIT), (40, CONCURRENT_ORDERS), (20, GREEDY)],
};
