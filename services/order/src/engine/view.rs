//! An order as it is shown: when it is placed, by itself, in lists, and as money to return.

use domain::{BuyerId, CartId, ItemId, Order, OrderId, OrderState, PaymentId, Quantity, Stated};
use jiff::Timestamp;

use super::{Engine, EngineError, Price};

/// An order as it is shown, whether the ledger or only its segment has it. It does not tell where
/// the units come from: the reply of a segment that has just given them does not say that either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderView {
    /// Id of the order.
    pub id: OrderId,
    /// The item that was ordered.
    pub item: ItemId,
    /// The buyer.
    pub buyer: BuyerId,
    /// Number of units.
    pub quantity: Quantity,
    /// The price of a unit that the buyer was told.
    pub price: Price,
    /// What the shop states of it. Of money to return for a line of a cart, the amount is the
    /// line's share of the cart's amount.
    pub stated: Stated,
    /// State of the order.
    pub state: OrderState,
    /// When its units were taken first, if that is known.
    pub created_at: Option<Timestamp>,
    /// Deadline of the hold.
    pub expires_at: Timestamp,
    /// The payment that has paid it, or whose money must be returned.
    pub payment: Option<PaymentId>,
    /// The cart that it is a line of, which alone decides about it.
    pub cart: Option<CartId>,
    /// Rises with every transition.
    pub version: u64,
}

impl OrderView {
    /// The view of an order of an item of this first price.
    pub(super) fn of(order: Order, first: Price) -> Self {
        Self {
            id: order.id,
            item: order.item,
            buyer: order.buyer,
            quantity: order.quantity,
            price: first.given(order.price),
            stated: order.stated,
            state: order.state,
            created_at: order.created_at,
            expires_at: order.expires_at,
            payment: order.payment,
            cart: order.cart,
            version: order.version,
        }
    }

    /// What it costs, in the currency's smallest unit: the total of the shop, or the price of its
    /// units.
    pub fn amount(&self) -> u64 {
        self.price.total(self.quantity, &self.stated)
    }
}

impl Engine {
    /// The view of an order. Of an unknown item it has no price and no currency.
    pub(crate) async fn view_order(&self, order: Order) -> Result<OrderView, EngineError> {
        let first = self.price_of(&order.item).await?;
        Ok(OrderView::of(order, first))
    }
}
