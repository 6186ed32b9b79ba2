//! The behaviors of buyers of carts, a file each.

mod cancels;
mod changes_lines;
mod expires;
mod extends;
mod over_the_limit;
mod pays;
mod pays_late;
mod refunded;
mod repeats;
mod watches;

pub use self::{
    cancels::CART_CANCELS, changes_lines::CART_CHANGES_LINES, expires::CART_EXPIRES,
    extends::CART_EXTENDS, over_the_limit::CART_OVER_THE_LIMIT, pays::CART_PAYS,
    pays_late::CART_PAYS_LATE, refunded::CART_REFUNDED, repeats::CART_REPEATS,
    watches::CART_WATCHES,
};

/// Report row of a first request for a cart.
const PLACE_CART: &str = "place cart";
/// Report row of a repeated request for a cart.
const REPEAT_CART: &str = "repeat cart";
/// Report row of showing one's own cart.
const POLL_CART: &str = "poll cart";
/// Report row of the provider's webhook.
const PAY_CART: &str = "pay cart";
/// Report row of a cancellation.
const CANCEL_CART: &str = "cancel cart";
