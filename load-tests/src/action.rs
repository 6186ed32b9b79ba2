//! What a virtual user requests from the service.

use client::NewOrder;
use uuid::Uuid;

use crate::cart::{CartCall, CartRef, CartStep};

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
    /// Places a cart.
    Cart(CartCall),
    /// Shows or changes a cart.
    Step(CartRef, CartStep),
}

impl Action {
    /// The HTTP method, for the report.
    pub fn method(&self) -> &'static str {
        match self {
            Self::Order(_) | Self::Pay { .. } | Self::Refund(_) | Self::Cart(_) => "POST",
            Self::Browse | Self::Show(_) => "GET",
            Self::Cancel(_) => "DELETE",
            Self::Step(_, step) => step.method(),
        }
    }

    /// The placed order that the action is about, if there is one.
    pub fn order(&self) -> Option<OrderRef> {
        match self {
            Self::Order(_) | Self::Browse | Self::Cart(_) | Self::Step(..) => None,
            Self::Show(order)
            | Self::Pay { order, .. }
            | Self::Cancel(order)
            | Self::Refund(order) => Some(*order),
        }
    }

    /// The refusals that the API declares for the action, except those of placing an order or a
    /// cart.
    pub fn refusals(&self) -> &'static [&'static str] {
        match self {
            Self::Order(_) | Self::Browse | Self::Cart(_) => &[],
            Self::Show(_) => &["order_not_found"],
            Self::Pay { .. } => &["order_not_payable", "already_paid", "order_in_cart"],
            Self::Cancel(_) => &["order_not_cancellable", "order_in_cart"],
            Self::Refund(_) => &["order_not_refundable", "order_in_cart"],
            Self::Step(_, step) => step.refusals(),
        }
    }
}

/// A request of one buyer.
#[derive(Debug, Clone)]
pub struct Call {
    /// The number of the buyer.
    pub buyer: usize,
    /// The number of the item; of a cart, that of its first line.
    pub item: usize,
    /// What is requested.
    pub action: Action,
}
