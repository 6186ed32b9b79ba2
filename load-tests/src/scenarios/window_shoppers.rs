//! People who look: most of what a shop answers is neither an order nor a refusal.

use crate::{
    buyers::{BROWSER, LOOKS_AND_BUYS, ONE_UNIT},
    scenario::{Scenario, Shelf},
};

/// Most only look at the item; those who buy poll their order, and try somebody else's eyes on it.
pub static WINDOW_SHOPPERS: Scenario = Scenario {
    name: "window-shoppers",
    shelf: Shelf::Kept,
    pays: false,
    must_resell: false,
    kinds: &[(60, BROWSER), (30, LOOKS_AND_BUYS), (10, ONE_UNIT)],
};
