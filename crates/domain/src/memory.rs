//! The state of an order that a segment must store, independent of how it gets there.

use crate::{BuyerId, OrderId, Quantity};

/// An order as its segment and its buyer's home must store it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// The order's own id.
    pub order: OrderId,
    /// The attempt: the latest one, or an earlier one whose return is pending. All other attempts
    /// have released their units.
    pub attempt: u8,
    /// The segment of the attempt.
    pub segment: u16,
    /// The buyer whose home counts the units.
    pub buyer: BuyerId,
    /// Number of units.
    pub quantity: Quantity,
    /// Deadline of the hold, in milliseconds since 1970.
    pub expires_ms: i64,
    /// Whether the segment still counts the attempt's units as taken: the order is held or
    /// confirmed, or its return is pending.
    pub taken: bool,
}
