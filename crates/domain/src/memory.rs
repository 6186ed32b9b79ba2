//! What a segment must know of an order, whoever tells it.

use crate::{BuyerId, OrderId, Quantity};

/// An order as its segment and its home must remember it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// The order's own id.
    pub order: OrderId,
    /// Which attempt: the latest, or an earlier one whose return is pending. All others have given their units back.
    pub attempt: u8,
    /// The segment of the attempt.
    pub segment: u16,
    /// Whose.
    pub buyer: BuyerId,
    /// How many units.
    pub quantity: Quantity,
    /// When its hold is over, in milliseconds since 1970.
    pub expires_ms: i64,
    /// Whether the segment still has the attempt's units as taken: it is held, confirmed, or its return is pending.
    pub taken: bool,
}
