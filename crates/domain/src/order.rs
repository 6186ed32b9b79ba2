//! Orders: a buyer's claim on units of an item.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{BuyerId, CartId, ItemId, OrderId, PaymentId, Quantity, item::named_enum};

/// An order as the ledger has recorded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Id of the order.
    pub id: OrderId,
    /// The item that was ordered.
    pub item: ItemId,
    /// The segment that the units came from.
    pub segment: u16,
    /// The buyer.
    pub buyer: BuyerId,
    /// Number of units.
    pub quantity: Quantity,
    /// The price of a unit that the buyer was told. `None`: the first one of the item.
    pub price: Option<u64>,
    /// What the shop states of it.
    pub stated: Stated,
    /// State of the order.
    pub state: OrderState,
    /// When its units were taken first. `None`: it was recorded by a release that did not note it,
    /// and took units again since.
    pub created_at: Option<Timestamp>,
    /// Deadline of the hold.
    pub expires_at: Timestamp,
    /// How many times its units were reacquired after they had been released. It selects the id
    /// ([`OrderId::reacquire`]) that has the units.
    pub attempt: u8,
    /// The payment that confirmed it, or that must be refunded (`refund_due`).
    pub payment: Option<PaymentId>,
    /// The cart that it is a line of, which alone decides about it.
    pub cart: Option<CartId>,
    /// Rises with every transition.
    pub version: u64,
}

/// What the shop states of an order with its request. The segment that gives units does not know
/// it: the ledger notes it as soon as it has the order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stated {
    /// The total of the shop, in the currency's smallest unit. `None`: the order costs the price of
    /// its units.
    pub amount: Option<u64>,
}

impl Stated {
    /// What is stated once a request states `more`. What it leaves out stays.
    #[must_use]
    pub fn with(&self, more: &Self) -> Self {
        Self {
            amount: more.amount.or(self.amount),
        }
    }
}

impl Order {
    /// The id under which a segment knows its units.
    pub fn take_id(&self) -> OrderId {
        self.id.reacquire(self.attempt)
    }
}

named_enum! {
    /// State of an order.
    OrderState {
        /// The units are reserved for the buyer until the deadline.
        Held = "held",
        /// The order is paid; the units belong to the buyer.
        Confirmed = "confirmed",
        /// The buyer has cancelled. The units went back.
        Cancelled = "cancelled",
        /// The deadline passed without a payment. The units went back.
        Expired = "expired",
        /// The payment came after the deadline and no units could be reacquired: the money must be
        /// refunded.
        RefundDue = "refund_due",
        /// The money was refunded, and the units went back.
        Refunded = "refunded",
        /// The ledger could not cover the order. It has no units.
        Rejected = "rejected",
    }
}

impl OrderState {
    /// The counter that includes the units of an order in this state.
    pub const fn units(self) -> Units {
        match self {
            Self::Held => Units::Held,
            Self::Confirmed => Units::Confirmed,
            Self::Cancelled | Self::Expired | Self::RefundDue | Self::Refunded | Self::Rejected => {
                Units::None
            }
        }
    }

    /// Whether the state machine allows this transition. A reacquisition that makes an expired
    /// order `held` again is not such a transition: it follows from the outbox of the segment that
    /// gave the units.
    pub const fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (
                Self::Held,
                Self::Confirmed | Self::Cancelled | Self::Expired
            ) | (Self::Confirmed | Self::RefundDue, Self::Refunded)
                | (Self::Expired, Self::RefundDue)
        )
    }
}

/// The counter of a segment's row that includes an order's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Units {
    /// Units that wait for payment.
    Held,
    /// Paid units.
    Confirmed,
    /// No counter: the order has no units.
    None,
}

#[cfg(test)]
mod tests {
    use super::OrderState;

    /// Every arrow of the diagram in `ARCHITECTURE.md`, and no other.
    #[test]
    fn the_allowed_transitions_are_those_of_the_architecture_diagram() {
        use OrderState::{Cancelled, Confirmed, Expired, Held, RefundDue, Refunded};
        let arrows = [
            (Held, Confirmed),
            (Held, Cancelled),
            (Held, Expired),
            (Confirmed, Refunded),
            (Expired, RefundDue),
            (RefundDue, Refunded),
        ];
        for from in OrderState::ALL {
            for to in OrderState::ALL {
                assert_eq!(
                    from.may_become(*to),
                    arrows.contains(&(*from, *to)),
                    "{from} to {to}"
                );
            }
        }
    }
}
