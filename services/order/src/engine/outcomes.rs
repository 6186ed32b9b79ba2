//! What payments, extensions and ends come to, of an order and of a cart.

use std::fmt::Debug;

use domain::{Cart, CartId, CartState, ItemId, Order, OrderState};

/// What is paid, held and ended as a whole: an order or a cart.
pub trait Purchase {
    /// Where it is in its life.
    type State: Debug + Clone + PartialEq + Eq;
}

impl Purchase for Order {
    type State = OrderState;
}

impl Purchase for Cart {
    type State = CartState;
}

/// Result of a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Paid<T: Purchase> {
    /// It is confirmed. Or it is `refund_due`, because its hold had expired and not all of its
    /// units could be reacquired.
    Done(T),
    /// There is no such order or cart.
    NotFound,
    /// It has ended: the money must be returned. The journal has the payment.
    NotPayable(T::State),
    /// Another payment has paid it: the money of this one must be returned. The journal has it.
    Already,
    /// The order is a line of this cart, which is paid as a whole. The journal has the payment.
    InCart(CartId),
    /// The payment was reported for another order or cart before. The journal has it.
    OtherOrder,
    /// The money of the payment was returned, so it pays nothing. Nothing was changed.
    Returned,
    /// The amount differs from what it costs. The journal has the payment.
    OtherAmount {
        /// What it costs.
        expected: u64,
    },
    /// The payment is in another currency. The journal has it.
    OtherCurrency {
        /// The currency of the order or cart.
        expected: String,
    },
    /// The report has no amount, and needs one.
    NoAmount {
        /// What it costs. `None`: a cart that is unchecked, which accepts any.
        expected: Option<u64>,
    },
}

impl<T: Purchase> Paid<T> {
    /// Whether the money of the payment is due, unless it was returned.
    pub(super) fn is_money_due(&self) -> bool {
        match self {
            Self::NotPayable(_)
            | Self::Already
            | Self::InCart(_)
            | Self::OtherOrder
            | Self::OtherAmount { .. }
            | Self::OtherCurrency { .. } => true,
            Self::Done(_) | Self::NotFound | Self::Returned | Self::NoAmount { .. } => false,
        }
    }
}

/// Result of extending a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extended<T: Purchase> {
    /// As it is now: this or an earlier request extended the hold, or it lasted long enough
    /// already.
    Done(T),
    /// There is no such order or cart, or it belongs to another buyer.
    NotFound,
    /// The order is a line of this cart, whose holds end together.
    InCart(CartId),
    /// In this state it holds nothing that could be extended.
    Refused(T::State),
    /// The item allows holds of this many seconds, and no other item of a cart allows fewer.
    TooLong {
        /// The item.
        item: ItemId,
        /// The longest hold.
        max_seconds: u32,
    },
}

/// Result of a cancellation or a refund.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended<T: Purchase> {
    /// As it is now, whether this or an earlier request ended it.
    Done(T),
    /// There is no such order or cart, or it belongs to another buyer.
    NotFound,
    /// The order is a line of this cart, which ends as a whole.
    InCart(CartId),
    /// In this state it cannot be cancelled or refunded.
    Refused(T::State),
}
