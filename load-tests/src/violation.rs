//! How an outcome can violate the promises of the service, and which violations say little while
//! servers fail.

/// How an outcome violates the promises of the service.
pub type Violation = &'static str;

pub const UNMARKED: Violation = "a repeat was not marked as replayed";
pub const UNMARKED_COPIES: Violation = "several concurrent copies were not marked as replayed";
pub const ALL_MARKED: Violation = "all concurrent copies were marked as replayed";

pub const CART_UNMARKED: Violation = "a repeat of a cart was not marked as replayed";
pub const CART_UNMARKED_COPIES: Violation =
    "several concurrent copies of a cart were not marked as replayed";
pub const ALL_CARTS_MARKED: Violation = "all concurrent copies of a cart were marked as replayed";
pub const CART_TOO_SLOW: Violation = "a cart was not placed in time";

/// Whether the outcome is right and only its mark as a replay is not, or its time. While servers
/// fail, a mark says little: a service repeats a call of Redis that got no reply, and finds its own
/// order. A master that took over may not know an order that the ledger has.
pub fn says_little_in_outages(violation: Violation) -> bool {
    [
        UNMARKED,
        UNMARKED_COPIES,
        ALL_MARKED,
        CART_UNMARKED,
        CART_UNMARKED_COPIES,
        ALL_CARTS_MARKED,
        CART_TOO_SLOW,
    ]
    .contains(&violation)
}
