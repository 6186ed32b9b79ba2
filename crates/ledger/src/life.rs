//! The life of an order after it was recorded.

pub(crate) mod extension;
pub(crate) mod transition;

use std::{collections::BTreeMap, sync::Arc};

use domain::{BuyerId, Order, OrderId, OrderState, PaymentId, Quantity, SegmentKey};

/// A transition of an order, decided on the order as it was read.
#[derive(Debug, Clone)]
pub struct Transition {
    /// The order as it was read. The transition applies only to this version.
    pub order: Order,
    /// The state that it shall have. `order.state.may_become(to)` must hold.
    pub to: OrderState,
    /// The payment that comes with the transition. It applies only if no other order has it.
    pub payment: Option<PaymentId>,
}

/// The admins who end orders, by the order. The journal names each of them. An order that is not
/// among them is ended by its buyer, its payment or the service.
pub type Actors = BTreeMap<OrderId, Arc<str>>;

/// Units of an ended order whose return by their segment the ledger has not recorded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingReturn {
    /// The id under which the segment knows the units ([`Order::take_id`]).
    pub id: OrderId,
    /// The segment that the units came from.
    pub segment: SegmentKey,
    /// The buyer whose count includes the units.
    pub buyer: BuyerId,
    /// Number of units.
    pub quantity: Quantity,
}
