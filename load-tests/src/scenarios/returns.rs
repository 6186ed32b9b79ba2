//! Returns: sold out, and then units come back and are bought by somebody else.

use crate::{
    buyers::{CANCELS, KEEPS, KNOCKS, REFUNDED},
    scenario::{Scenario, Shelf},
};

/// A sold-out flag that nobody takes back strands what these buyers return.
pub static RETURNS: Scenario = Scenario {
    name: "returns",
    shelf: Shelf::Returned,
    pays: true,
    must_resell: true,
    kinds: &[(40, KNOCKS), (30, CANCELS), (20, REFUNDED), (10, KEEPS)],
};
