//! What becomes of an order after it was recorded.

pub(crate) mod transition;

use domain::{BuyerId, Order, OrderId, OrderState, PaymentId, Quantity, SegmentKey};

/// A step in an order's life, decided on the order as it was read.
#[derive(Debug, Clone)]
pub struct Transition {
    /// The order; its version is what the step is checked against.
    pub order: Order,
    /// The state that it shall have. `order.state.may_become(to)` must hold.
    pub to: OrderState,
    /// The payment that comes with the step.
    pub payment: Option<PaymentId>,
}

/// Units of an order that has ended, which their segment has not taken back yet as far as the ledger knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingReturn {
    /// The id under which the segment knows them ([`Order::take_id`]).
    pub id: OrderId,
    /// The segment that gave them.
    pub segment: SegmentKey,
    /// Whose count they are in.
    pub buyer: BuyerId,
    /// How many.
    pub quantity: Quantity,
}
