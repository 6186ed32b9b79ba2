//! What a virtual user requests from the service.

use client::NewOrder;
use uuid::Uuid;

/// An order that was placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderRef {
    /// The name of the order.
    pub id: Uuid,
    /// Number of units.
    pub quantity: u32,
}

/// What is requested.
#[derive(Debug, Clone)]
pub enum Action {
    /// Places an order.
    Order(NewOrder),
    /// Shows the item.
    Browse,
    /// Shows an order.
    Show(OrderRef),
    /// Reports a payment, as the provider does.
    Pay {
        /// The paid order.
        order: OrderRef,
        /// The provider's name for the payment.
        payment: String,
    },
    /// Cancels the order.
    Cancel(OrderRef),
    /// Notes, as an admin, that the money was returned.
    Refund(OrderRef),
}

impl Action {
    /// The HTTP method, for the report.
    pub fn method(&self) -> &'static str {
        match self {
            Self::Order(_) | Self::Pay { .. } | Self::Refund(_) => "POST",
            Self::Browse | Self::Show(_) => "GET",
            Self::Cancel(_) => "DELETE",
        }
    }

    /// The placed order that the action is about, if there is one.
    pub fn order(&self) -> Option<OrderRef> {
        match self {
            Self::Order(_) | Self::Browse => None,
            Self::Show(order)
            | Self::Pay { order, .. }
            | Self::Cancel(order)
            | Self::Refund(order) => Some(*order),
        }
    }

    /// The refusals that the API declares for the action, except those of placing an order.
    pub fn refusals(&self) -> &'static [&'static str] {
        match self {
            Self::Order(_) | Self::Browse => &[],
            Self::Show(_) => &["order_not_found"],
            Self::Pay { .. } => &["order_not_payable", "already_paid"],
            Self::Cancel(_) => &["order_not_cancellable"],
            Self::Refund(_) => &["order_not_refundable"],
        }
    }
}

/// A request of one buyer.
#[derive(Debug, Clone)]
pub struct Call {
    /// The number of the buyer.
    pub buyer: usize,
    /// The number of the item.
    pub item: usize,
    /// What is requested.
    pub action: Action,
}
