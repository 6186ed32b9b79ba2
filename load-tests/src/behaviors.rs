//! The behaviors of virtual users, a file each.
//!
//! A behavior says what a virtual user does in one session, with the methods of [`Session`]. A
//! scenario says how many of a hundred virtual users have each behavior.

mod browser;
mod cancels;
mod carts;
mod concurrent_orders;
mod expires;
mod greedy;
mod impatient;
mod keeps;
mod looks_and_buys;
mod one_unit;
mod over_the_limit;
mod pays;
mod pays_late;
mod refunded;
mod repeats;
mod retries_when_sold_out;
mod stubborn;
mod two_units;

use futures::future::BoxFuture;

pub use self::{
    browser::BROWSER, cancels::CANCELS, carts::*, concurrent_orders::CONCURRENT_ORDERS,
    expires::EXPIRES, greedy::GREEDY, impatient::IMPATIENT, keeps::KEEPS,
    looks_and_buys::LOOKS_AND_BUYS, one_unit::ONE_UNIT, over_the_limit::OVER_THE_LIMIT, pays::PAYS,
    pays_late::PAYS_LATE, refunded::REFUNDED, repeats::REPEATS,
    retries_when_sold_out::RETRIES_WHEN_SOLD_OUT, stubborn::STUBBORN, two_units::TWO_UNITS,
};
use crate::session::{Session, Step};

/// Report row of a first order request.
const PLACE: &str = "place order";
/// Report row of a repeated order request.
const REPEAT: &str = "repeat order";
/// Report row of an order request in a storm of retries.
const STORM: &str = "place order in a storm";
/// Report row of showing the item.
const BROWSE: &str = "browse item";
/// Report row of showing one's own order.
const POLL: &str = "poll order";
/// Report row of the provider's webhook.
const PAY: &str = "pay order";
/// Report row of a cancellation.
const CANCEL: &str = "cancel order";

/// What a virtual user does in a session.
#[derive(Debug)]
pub struct Behavior {
    /// The name of the behavior.
    pub name: &'static str,
    /// Runs a session; [`End::Early`](crate::session::End::Early) if it ended before its behavior did.
    pub run: for<'s> fn(&'s mut Session<'_>) -> BoxFuture<'s, Step<()>>,
}
