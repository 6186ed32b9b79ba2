//! Buyers who try every way past the limit: one order after another, all at once, and too much in one.

use crate::{
    buyers::{ALL_AT_ONCE, GREEDY, OVER_THE_LIMIT},
    scenario::{Scenario, Shelf},
};

/// Nobody may end with more than the limit, and nobody below it may be refused for it.
pub static LIMIT_ABUSERS: Scenario = Scenario {
    name: "limit-abusers",
    shelf: Shelf::Kept,
    pays: false,
    must_resell: false,
    kinds: &[(40, OVER_THE_LIMIT), (40, ALL_AT_ONCE), (20, GREEDY)],
};
