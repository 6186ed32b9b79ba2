//! The kinds of buyers, a file each.
//!
//! A kind says what its buyer does in one visit, in the words of [`Visit`]; a scenario's mix says how many of each kind come.

mod all_at_once;
mod browser;
mod cancels;
mod forgets;
mod greedy;
mod impatient;
mod keeps;
mod knocks;
mod looks_and_buys;
mod one_unit;
mod over_the_limit;
mod pays;
mod pays_late;
mod refunded;
mod repeats;
mod stubborn;
mod two_units;

use futures::future::BoxFuture;

pub use self::{
    all_at_once::ALL_AT_ONCE, browser::BROWSER, cancels::CANCELS, forgets::FORGETS, greedy::GREEDY,
    impatient::IMPATIENT, keeps::KEEPS, knocks::KNOCKS, looks_and_buys::LOOKS_AND_BUYS,
    one_unit::ONE_UNIT, over_the_limit::OVER_THE_LIMIT, pays::PAYS, pays_late::PAYS_LATE,
    refunded::REFUNDED, repeats::REPEATS, stubborn::STUBBORN, two_units::TWO_UNITS,
};
use crate::visit::{Step, Visit};

/// What the report calls a first request.
const PLACE: &str = "place order";
/// What the report calls a repeat.
const REPEAT: &str = "repeat order";
/// What the report calls a request that a client makes again and again.
const STORM: &str = "place order in a storm";
/// What the report calls a look at the item.
const BROWSE: &str = "browse item";
/// What the report calls a look at one's order.
const POLL: &str = "poll order";
/// What the report calls the provider's webhook.
const PAY: &str = "pay order";
/// What the report calls a cancellation.
const CANCEL: &str = "cancel order";

/// A kind of buyer.
#[derive(Debug)]
pub struct Kind {
    /// What the kind is called.
    pub name: &'static str,
    /// What such a buyer does; `None` if the run ended before it was done.
    pub buy: for<'v> fn(&'v mut Visit<'_>) -> BoxFuture<'v, Step<()>>,
}
