//! The kinds of buyers, a file each.
//!
//! A kind says what its buyer does in one visit, in the words of [`Visit`]; a scenario's mix says how many of each kind come.

mod one_unit;
mod over_the_limit;
mod repeats;
mod two_units;

use futures::future::BoxFuture;

pub use self::{one_unit::ONE_UNIT, over_the_limit::OVER_THE_LIMIT, repeats::REPEATS, two_units::TWO_UNITS};
use crate::visit::{Step, Visit};

/// What the report calls a first request.
const PLACE: &str = "place order";
/// What the report calls a repeat.
const REPEAT: &str = "repeat order";

/// A kind of buyer.
#[derive(Debug)]
pub struct Kind {
    /// What the kind is called.
    pub name: &'static str,
    /// What such a buyer does; `None` if the run ended before it was done.
    pub buy: for<'v> fn(&'v mut Visit<'_>) -> BoxFuture<'v, Step<()>>,
}
