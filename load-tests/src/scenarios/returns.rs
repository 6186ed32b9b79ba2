//! Units that return after the item has sold out, and are bought by others.

use crate::{
    behaviors::{CANCELS, KEEPS, REFUNDED, RETRIES_WHEN_SOLD_OUT},
    return_policy::ReturnPolicy,
    scenario::Scenario,
};

/// Finds a service whose sold-out state is not reset when units return.
pub static RETURNS: Scenario = Scenario {
    name: "returns",
    policy: ReturnPolicy::Returned,
    pays: true,
    must_resell: true,
    behaviors: &[
        (40, RETRIES_WHEN_SOLD_OUT),
        (30, CANCELS),
        (20, REFUNDED),
        (10, KEEPS),
    ],
};
