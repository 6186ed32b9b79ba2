//! The whole life of an order: paid, cancelled, or left until its hold is over.

use crate::{
    buyers::{CANCELS, FORGETS, PAYS, PAYS_LATE},
    scenario::{Scenario, Shelf},
};

/// Most pay, as in a shop. Holds are short, so that what is forgotten comes back while the run lasts.
pub static WHOLE_LIFE: Scenario = Scenario {
    name: "whole-life",
    shelf: Shelf::Expiring,
    pays: true,
    must_resell: false,
    kinds: &[(50, PAYS), (25, CANCELS), (20, FORGETS), (5, PAYS_LATE)],
};
