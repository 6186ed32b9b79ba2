//! Scenarios: the behaviors of virtual users, and what may happen to the units they buy.

use crate::{behaviors::Behavior, return_policy::ReturnPolicy};

/// A scenario.
#[derive(Debug)]
pub struct Scenario {
    /// The name on the command line.
    pub name: &'static str,
    /// What may happen to the units of its items.
    pub policy: ReturnPolicy,
    /// Whether a behavior pays, so that the run needs the payment secret.
    pub pays: bool,
    /// Whether the run fails if no unit returned and was bought again.
    pub must_resell: bool,
    /// The behaviors, with their shares of a hundred virtual users.
    pub behaviors: &'static [(u32, Behavior)],
}
