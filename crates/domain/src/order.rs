//! A buyer's claim on units of an item.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{BuyerId, ItemId, OrderId, PaymentId, Quantity, item::named_enum};

/// A buyer's claim on a quantity of one item, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Its name.
    pub id: OrderId,
    /// What was ordered.
    pub item: ItemId,
    /// The segment that gave the units.
    pub segment: u16,
    /// Who ordered.
    pub buyer: BuyerId,
    /// How many units.
    pub quantity: Quantity,
    /// Where it stands.
    pub state: OrderState,
    /// When the hold is over.
    pub expires_at: Timestamp,
    /// How often its units were taken anew after they had been given back: which of its ids ([`OrderId::retake`]) has them.
    pub attempt: u8,
    /// The payment that confirmed it, or that is to be given back (`refund_due`).
    pub payment: Option<PaymentId>,
    /// Rises with every transition.
    pub version: u64,
}

impl Order {
    /// The id under which a segment knows its units.
    pub fn take_id(&self) -> OrderId {
        self.id.retake(self.attempt)
    }
}

named_enum! {
    /// Where an order stands.
    OrderState {
        /// The units are the buyer's until the hold is over.
        Held = "held",
        /// It is paid, and the units are the buyer's.
        Confirmed = "confirmed",
        /// The buyer has given the units back.
        Cancelled = "cancelled",
        /// Nobody paid while the hold lasted. The units went back.
        Expired = "expired",
        /// It was paid after its hold, and no units could be had again: the money is to be given back.
        RefundDue = "refund_due",
        /// The money was given back, and the units with it.
        Refunded = "refunded",
        /// The ledger could not cover it. Nothing was taken.
        Rejected = "rejected",
    }
}

impl OrderState {
    /// Where a segment's units of an order in this state are counted.
    pub const fn units(self) -> Units {
        match self {
            Self::Held => Units::Held,
            Self::Confirmed => Units::Confirmed,
            Self::Cancelled | Self::Expired | Self::RefundDue | Self::Refunded | Self::Rejected => {
                Units::None
            }
        }
    }

    /// Whether an order may go from this state to `next`. That a retake makes an expired order `held` again is not a transition of
    /// its own: the segment that gave the units says so.
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

/// Where the units of an order are counted in its segment's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Units {
    /// Among those that wait for payment.
    Held,
    /// Among the paid ones.
    Confirmed,
    /// Nowhere: the order has none.
    None,
}

#[cfg(test)]
mod tests {
    use super::OrderState;

    /// The picture in `ARCHITECTURE.md`, arrow by arrow.
    #[test]
    fn the_transitions_are_those_of_the_picture() {
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
