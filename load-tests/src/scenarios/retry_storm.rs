//! Clients that do not wait for the response, and retry on all of their connections.

use crate::{
    behaviors::{IMPATIENT, REPEATS, STUBBORN},
    return_policy::ReturnPolicy,
    scenario::Scenario,
};

/// Finds a service that places an order for each attempt, or that loses an order whose response was
/// not received.
pub static RETRY_STORM: Scenario = Scenario {
    name: "retry-storm",
    policy: ReturnPolicy::Final,
    pays: false,
    must_resell: false,
    behaviors: &[(50, IMPATIENT), (30, STUBBORN), (20, REPEATS)],
};
