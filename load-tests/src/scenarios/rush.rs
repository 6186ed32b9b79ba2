//! The rush: many buyers, and far fewer units than buyers.

use crate::{
    buyers::{ONE_UNIT, OVER_THE_LIMIT, REPEATS, TWO_UNITS},
    scenario::{Scenario, Shelf},
};

/// Most order one unit, some repeat their request, some want two, some exceed the limit.
pub static RUSH: Scenario = Scenario {
    name: "rush",
    shelf: Shelf::Kept,
    pays: false,
    must_resell: false,
    kinds: &[
        (65, ONE_UNIT),
        (15, REPEATS),
        (10, TWO_UNITS),
        (10, OVER_THE_LIMIT),
    ],
};
