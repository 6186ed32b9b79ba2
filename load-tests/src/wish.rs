//! What a buyer asks the service for.

use reqwest::{Method, header::HeaderValue};
use serde::Deserialize;
use uuid::Uuid;

/// An order that was placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Which.
    pub id: Uuid,
    /// Units.
    pub quantity: u32,
}

/// Where an order stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The units are the buyer's until the hold is over.
    Held,
    /// It is paid.
    Confirmed,
    /// The buyer has given the units back.
    Cancelled,
    /// Nobody paid while the hold lasted.
    Expired,
    /// It was paid too late, and the units were gone.
    RefundDue,
    /// The money was given back, and the units with it.
    Refunded,
}

impl State {
    /// Whether the units are the buyer's.
    pub fn has_units(self) -> bool {
        matches!(self, Self::Held | Self::Confirmed)
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub enum Wish {
    /// Units.
    Order {
        /// Which of the buyer's orders.
        key: HeaderValue,
        /// How many.
        quantity: u32,
    },
    /// To see the item.
    Browse,
    /// To see an order.
    Show(Placed),
    /// That the provider's report of a payment is taken in.
    Pay {
        /// What is paid.
        order: Placed,
        /// The provider's name for the payment.
        payment: String,
    },
    /// To give the units back.
    Cancel(Placed),
    /// That an admin notes that the money was given back.
    Refund(Placed),
}

impl Wish {
    /// How HTTP says it.
    pub fn method(&self) -> Method {
        match self {
            Self::Order { .. } | Self::Pay { .. } | Self::Refund(_) => Method::POST,
            Self::Browse | Self::Show(_) => Method::GET,
            Self::Cancel(_) => Method::DELETE,
        }
    }

    /// The order that it is about, if that has been placed.
    pub fn order(&self) -> Option<Placed> {
        match self {
            Self::Order { .. } | Self::Browse => None,
            Self::Show(order)
            | Self::Pay { order, .. }
            | Self::Cancel(order)
            | Self::Refund(order) => Some(*order),
        }
    }

    /// The refusals that the API declares for it.
    pub fn refusals(&self) -> &'static [&'static str] {
        match self {
            Self::Order { .. } | Self::Browse => &[],
            Self::Show(_) => &["order_not_found"],
            Self::Pay { .. } => &["order_not_payable", "already_paid"],
            Self::Cancel(_) => &["order_not_cancellable"],
            Self::Refund(_) => &["order_not_refundable"],
        }
    }
}

/// A request: all that tells it from others.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Who asks.
    pub buyer: usize,
    /// About which item.
    pub item: usize,
    /// For what.
    pub wish: Wish,
}
