//! Refunds of orders and carts, and which of them came before their payment.
//!
//! A provider sends its reports in any order. A refund that overtakes its payment must not be
//! dropped: the payment would then confirm an order whose money was returned.

use domain::{Cart, CartId, CartState, ItemId, Order, OrderId, OrderState, PaymentId};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::{Ended, Engine, EngineError, life::unmatched_name};

/// How long after the end of its hold an order may still wait for the report of a payment. Stripe
/// gives up a report after three days.
const PAYMENT_AWAITED: SignedDuration = SignedDuration::from_hours(3 * 24);

impl Engine {
    /// Records that the money was returned, and releases the units of the order if it has any.
    pub async fn refund(&self, id: OrderId) -> Result<Ended, EngineError> {
        self.refund_if(id, |_| true).await
    }

    /// The same, if this payment has paid the order. Another payment of its buyer may have been
    /// returned because the order was paid already.
    pub async fn refund_payment(
        &self,
        id: OrderId,
        payment: &PaymentId,
    ) -> Result<Ended, EngineError> {
        self.refund_if(id, |order| order.payment.as_ref() == Some(payment))
            .await
    }

    /// The same, if the order is `refund_due`: its payment found no units.
    pub(super) async fn refund_due_order(&self, id: OrderId) -> Result<Ended, EngineError> {
        self.refund_if(id, |order| order.state == OrderState::RefundDue)
            .await
    }

    async fn refund_if(
        &self,
        id: OrderId,
        applies: impl Fn(&Order) -> bool,
    ) -> Result<Ended, EngineError> {
        let target = |order: &Order| {
            let paid = matches!(order.state, OrderState::Confirmed | OrderState::RefundDue);
            (paid && applies(order)).then_some(OrderState::Refunded)
        };
        self.with_timeout(self.end(id, None, OrderState::Refunded, target))
            .await
    }

    /// Whether this payment has not paid the order yet, and may still do so.
    pub async fn awaits_payment(
        &self,
        id: OrderId,
        payment: &PaymentId,
    ) -> Result<bool, EngineError> {
        let Some(order) = self.ledger.order(id.first()).await? else {
            return Ok(false);
        };
        Ok(Payable::of(&order).may_be_paid(payment, Timestamp::now())
            && !self
                .is_of_another(order.id.as_uuid(), &order.item, payment)
                .await?)
    }

    /// The same for a cart.
    pub async fn cart_awaits_payment(
        &self,
        id: CartId,
        payment: &PaymentId,
    ) -> Result<bool, EngineError> {
        let Some(cart) = self.ledger.cart(id).await? else {
            return Ok(false);
        };
        // The journal has a payment of a cart with the item of its first line.
        let Some(line) = cart.lines.first() else {
            return Ok(false);
        };
        Ok(
            Payable::of_cart(&cart).may_be_paid(payment, Timestamp::now())
                && !self
                    .is_of_another(cart.id.as_uuid(), &line.item, payment)
                    .await?,
        )
    }

    /// Whether the payment has paid another order or cart, or was reported for this one and could
    /// not pay it.
    async fn is_of_another(
        &self,
        payable: Uuid,
        item: &ItemId,
        payment: &PaymentId,
    ) -> Result<bool, EngineError> {
        let payer = self.ledger.paid_order(payment).await?;
        if payer.is_some_and(|payer| payer.as_uuid() != payable) {
            return Ok(true);
        }
        let name = unmatched_name(payable, payment);
        Ok(payer.is_none() && self.ledger.is_noted(item, &name).await?)
    }
}

/// The part of an order or a cart that says whether it may be paid.
struct Payable<'a> {
    /// The state, of a cart that of its lines. `None`: the cart is being placed.
    state: Option<OrderState>,
    expires_at: Timestamp,
    payment: Option<&'a PaymentId>,
}

impl<'a> Payable<'a> {
    fn of(order: &'a Order) -> Self {
        Self {
            state: Some(order.state),
            expires_at: order.expires_at,
            payment: order.payment.as_ref(),
        }
    }

    fn of_cart(cart: &'a Cart) -> Self {
        Self {
            state: match cart.state {
                CartState::Failed => Some(OrderState::Rejected),
                state => state.lines(),
            },
            expires_at: cart.expires_at,
            payment: cart.payment.as_ref(),
        }
    }

    /// Whether the payment may pay it, or has just done so.
    fn may_be_paid(&self, payment: &PaymentId, now: Timestamp) -> bool {
        match self.state {
            None | Some(OrderState::Held) => true,
            Some(OrderState::Expired) => now.duration_since(self.expires_at) < PAYMENT_AWAITED,
            Some(OrderState::Confirmed | OrderState::RefundDue) => self.payment == Some(payment),
            Some(OrderState::Cancelled | OrderState::Refunded | OrderState::Rejected) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payment_is_awaited_for_three_days_after_the_hold() {
        let expires_at = Timestamp::UNIX_EPOCH;
        let payment = PaymentId::new("pi_1").unwrap();
        let expired = Payable {
            state: Some(OrderState::Expired),
            expires_at,
            payment: None,
        };
        let after = |hours| expires_at + SignedDuration::from_hours(hours);
        assert!(expired.may_be_paid(&payment, after(71)));
        assert!(!expired.may_be_paid(&payment, after(72)));
    }
}
