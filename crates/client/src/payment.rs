//! Payments, as the payment provider reports them.

use serde::Serialize;
use uuid::Uuid;

use crate::{Cart, Client, Error, Order, PaymentKey, Request, Response};

/// A payment of an order, or, as a [`CartPayment`], of a cart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Payment<T = OfOrder> {
    payment: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    currency: Option<String>,
    #[serde(flatten)]
    of: T,
}

/// A payment of a cart.
pub type CartPayment = Payment<OfCart>;

/// The order that a payment is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OfOrder {
    order: Uuid,
}

/// The cart that a payment is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OfCart {
    cart: Uuid,
}

impl From<Uuid> for OfOrder {
    fn from(order: Uuid) -> Self {
        Self { order }
    }
}

impl From<Uuid> for OfCart {
    fn from(cart: Uuid) -> Self {
        Self { cart }
    }
}

/// Reports payments to the service, signed with the payment key.
#[derive(Clone, Debug)]
pub struct PaymentProvider {
    client: Client,
    key: PaymentKey,
}

impl<T: From<Uuid>> Payment<T> {
    /// The payment `id` of the order or cart `of`. The provider chooses the id, and every repeat
    /// has the same one.
    ///
    /// The body names what was paid, because the signature covers the body and not the path.
    pub fn new(id: impl Into<String>, of: Uuid) -> Self {
        Self {
            payment: id.into(),
            amount: None,
            currency: None,
            of: of.into(),
        }
    }

    /// What was paid. The service checks that it is the amount of the order or cart. One that costs
    /// something needs it, and so does a cart that is unchecked.
    #[must_use]
    pub fn amount(self, amount: u64) -> Self {
        Self {
            amount: Some(amount),
            ..self
        }
    }

    /// What it was paid in (ISO 4217, three capital letters). The service checks that it is the
    /// currency of the order or cart.
    #[must_use]
    pub fn currency(self, currency: impl Into<String>) -> Self {
        Self {
            currency: Some(currency.into()),
            ..self
        }
    }
}

impl CartPayment {
    pub(crate) fn cart(&self) -> Uuid {
        self.of.cart
    }
}

impl PaymentProvider {
    pub(crate) fn new(client: Client, key: PaymentKey) -> Self {
        Self { client, key }
    }

    /// Reports a payment; returns the order as it is now.
    ///
    /// Check [`Order::state`]: `refund_due` means that the order had expired and no units were
    /// left, so the money must be returned.
    pub async fn report(&self, payment: &Payment) -> Result<Order, Error> {
        let request = Request::pay(&self.key, payment.of.order, payment);
        let read = |response: &Response| Order::read(response, payment.of.order);
        self.client.call(&request, read).await
    }

    /// Reports a payment of a cart; returns the cart as it is now.
    ///
    /// Check [`Cart::state`]: `refund_due` means that the cart had expired and no units were left
    /// for one of its lines, so the money must be returned.
    pub async fn report_cart(&self, payment: &CartPayment) -> Result<Cart, Error> {
        let request = Request::pay_cart(&self.key, payment);
        let read = |response: &Response| Cart::read(response, payment.cart());
        self.client.call(&request, read).await
    }
}
