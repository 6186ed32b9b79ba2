//! The storm of retries: clients that do not wait for the answer, and ask again on every connection they have.

use crate::{
    buyers::{IMPATIENT, REPEATS, STUBBORN},
    scenario::{Scenario, Shelf},
};

/// A service that counts an attempt as an order sells to these buyers several times, and one that forgets it loses what they bought.
pub static RETRY_STORM: Scenario = Scenario {
    name: "retry-storm",
    shelf: Shelf::Kept,
    pays: false,
    must_resell: false,
    kinds: &[(50, IMPATIENT), (30, STUBBORN), (20, REPEATS)],
};
