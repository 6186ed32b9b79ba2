//! The life of a cart after it was placed: payment, cancellation, refund, all lines at once.

use std::sync::Arc;

use domain::{BuyerId, Cart, CartId, CartState, OrderState, PaymentId};
use ledger::{CartStep, LedgerError};
use tokio::time::Instant;

use super::super::{
    Caller, Ended, Engine, EngineError, Paid, Payable, Payment, orders::POLL_PAUSE_MAX,
    unmatched::PaidOrder,
};

impl Engine {
    /// The cart, if it belongs to `buyer` (`None`: any buyer).
    pub async fn find_cart(
        &self,
        id: CartId,
        buyer: Option<&BuyerId>,
    ) -> Result<Option<Cart>, EngineError> {
        let (uuid, mark) = (id.as_uuid(), self.misses.mark(id.as_uuid()));
        if self.misses.has(uuid, buyer) {
            return Ok(None);
        }
        let found = self.ledger.look_up_cart(id).await?;
        let found = found.filter(|cart| buyer.is_none_or(|buyer| *buyer == cart.buyer));
        if found.is_none() {
            self.misses.note(uuid, buyer, mark);
        }
        Ok(found)
    }

    /// Applies a payment to all lines of its cart. Providers may report a payment repeatedly: the
    /// result is the same. No answer asks for money that was returned already.
    pub async fn pay_cart(&self, id: CartId, payment: &Payment) -> Result<Paid<Cart>, EngineError> {
        // Boxed: it holds the futures of all its steps, and payments are rare beside orders.
        let paid = self
            .in_rounds(|until| Box::pin(self.pay_cart_once(id, payment, until)))
            .await?;
        self.unless_returned(paid, payment, id.as_uuid()).await
    }

    /// `None`: the cart has changed meanwhile, and must be read again.
    async fn pay_cart_once(
        &self,
        id: CartId,
        payment: &Payment,
        until: Instant,
    ) -> Result<Option<Paid<Cart>>, EngineError> {
        let Some(cart) = self.ledger.cart(id).await? else {
            return Ok(Some(Paid::NotFound));
        };
        if let Some(refused) = refused(&cart, payment) {
            // A report that lacks its amount is sent again with it.
            if !matches!(refused, Paid::NoAmount { .. }) {
                self.note_unmatched_cart_payment(&cart, payment).await?;
            }
            return Ok(Some(refused));
        }
        let to = match cart.state {
            // Its buyer learns its id when it is held, so this is a matter of moments.
            CartState::Placing => {
                tokio::time::sleep(POLL_PAUSE_MAX).await;
                return Ok(None);
            }
            CartState::Held => CartState::Confirmed,
            CartState::Expired => {
                // Before any line takes units again: their holds would have to expire once more.
                if let Some(refused) = self.cart_payment_spent(&cart, payment).await? {
                    return Ok(Some(refused));
                }
                match self.reacquire_cart(&cart, until).await? {
                    Some(to) => to,
                    None => return Ok(None),
                }
            }
            _ => return Ok(Some(Paid::Done(cart))),
        };
        let step = CartStep {
            payment: Some(payment.id.clone()),
            paid: payment.amount.filter(|_| !cart.is_checked),
            ..CartStep::to(&cart, to)
        };
        let stepped = match self.step_cart(&step).await {
            // A line took its units again or lost them meanwhile.
            Err(EngineError::Ledger(LedgerError::CartSuperseded(_))) => return Ok(None),
            stepped => stepped?,
        };
        if let Some(stepped) = stepped {
            return Ok(Some(Paid::Done(stepped.cart)));
        }
        let refused = self.cart_payment_spent(&cart, payment).await;
        refused.map_err(EngineError::after_change)
    }

    /// Why the payment did not pay the cart. `None`: a concurrent step was faster.
    async fn cart_payment_spent(
        &self,
        cart: &Cart,
        payment: &Payment,
    ) -> Result<Option<Paid<Cart>>, EngineError> {
        if self.is_returned(&payment.id, cart.id.as_uuid()).await? {
            return Ok(Some(Paid::Returned));
        }
        let payer = self.ledger.paid_order(&payment.id).await?;
        if payer.is_some_and(|payer| payer.as_uuid() != cart.id.as_uuid()) {
            self.note_unmatched_cart_payment(cart, payment).await?;
            return Ok(Some(Paid::OtherOrder));
        }
        Ok(None)
    }

    /// Journals a payment that the cart cannot take, because an operator has to return the money.
    /// Repeated reports of the payment write one entry, with the first line. One whose money was
    /// returned has none.
    async fn note_unmatched_cart_payment(
        &self,
        cart: &Cart,
        payment: &Payment,
    ) -> Result<(), EngineError> {
        let Some(line) = cart.lines.first().filter(|_| !is_own(cart, payment)) else {
            return Ok(());
        };
        let paid = PaidOrder {
            order: line.order,
            state: cart.state.lines().unwrap_or(OrderState::Cancelled),
            cart: Some(cart.id),
        };
        let of = Payable::Cart(cart.id);
        self.note_unmatched(of, &line.item, paid, payment).await
    }

    /// Cancels all lines of a held cart and releases their units.
    pub async fn cancel_cart(
        &self,
        id: CartId,
        caller: &Caller,
    ) -> Result<Ended<Cart>, EngineError> {
        self.end_cart(id, caller, CartState::Cancelled, |_| true)
            .await
    }

    /// Records that `admin` has returned the money, and releases the units of all lines if they
    /// have any.
    pub async fn refund_cart(
        &self,
        id: CartId,
        admin: &Arc<str>,
    ) -> Result<Ended<Cart>, EngineError> {
        let caller = Caller::Admin(Arc::clone(admin));
        self.end_cart(id, &caller, CartState::Refunded, |_| true)
            .await
    }

    /// The same, if this payment has paid the cart.
    pub(in crate::engine) async fn refund_cart_payment(
        &self,
        id: CartId,
        payment: &PaymentId,
    ) -> Result<Ended<Cart>, EngineError> {
        let applies = |cart: &Cart| cart.payment.as_ref() == Some(payment);
        self.end_cart(id, &Caller::Provider, CartState::Refunded, applies)
            .await
    }

    /// The cart that the caller may change. A report about money and an admin's change depend on
    /// what is there now: a look-up at this process may have missed the cart just before another
    /// one placed it.
    pub(super) async fn cart_to_change(
        &self,
        id: CartId,
        caller: &Caller,
    ) -> Result<Option<Cart>, EngineError> {
        match caller.buyer() {
            Some(buyer) => self.find_cart(id, Some(buyer)).await,
            None => Ok(self.ledger.cart(id).await?),
        }
    }

    async fn end_cart(
        &self,
        id: CartId,
        caller: &Caller,
        to: CartState,
        applies: impl Fn(&Cart) -> bool,
    ) -> Result<Ended<Cart>, EngineError> {
        let (admin, applies) = (caller.admin(), &applies);
        let end_once = |_| async move {
            let Some(cart) = self.cart_to_change(id, caller).await? else {
                return Ok(Some(Ended::NotFound));
            };
            if cart.state == to {
                return Ok(Some(Ended::Done(cart)));
            }
            if !cart.state.may_become(to) || !applies(&cart) {
                return Ok(Some(Ended::Refused(cart.state)));
            }
            let step = CartStep {
                actor: admin.cloned(),
                returns_money: to == CartState::Refunded && admin.is_some(),
                ..CartStep::to(&cart, to)
            };
            let stepped = self.step_cart(&step).await?;
            Ok(stepped.map(|stepped| Ended::Done(stepped.cart)))
        };
        self.in_rounds(end_once).await
    }
}

/// Whether the payment is the one that the cart has.
fn is_own(cart: &Cart, payment: &Payment) -> bool {
    cart.payment.as_ref() == Some(&payment.id)
}

/// Why the cart cannot take the payment, by its amount and its state.
fn refused(cart: &Cart, payment: &Payment) -> Option<Paid<Cart>> {
    let other_currency = |paid: &String| *paid != cart.currency;
    if payment.currency.as_ref().is_some_and(other_currency) {
        let expected = cart.currency.clone();
        return Some(Paid::OtherCurrency { expected });
    }
    if let Some(refused) = other_amount(cart, payment) {
        return Some(refused);
    }
    match cart.state {
        CartState::Placing | CartState::Held | CartState::Expired => None,
        CartState::Cancelled | CartState::Failed => Some(Paid::NotPayable(cart.state)),
        CartState::Refunded if !is_own(cart, payment) => Some(Paid::NotPayable(cart.state)),
        CartState::Confirmed | CartState::RefundDue if !is_own(cart, payment) => {
            Some(Paid::Already)
        }
        CartState::Confirmed | CartState::RefundDue | CartState::Refunded => None,
    }
}

/// An unchecked cart takes any amount, which has to be known: it is what may be due back.
fn other_amount(cart: &Cart, payment: &Payment) -> Option<Paid<Cart>> {
    let expected = cart.amount;
    match payment.amount {
        Some(amount) if cart.is_checked && amount != expected => {
            Some(Paid::OtherAmount { expected })
        }
        None if !cart.is_checked => Some(Paid::NoAmount { expected: None }),
        None if expected > 0 => Some(Paid::NoAmount {
            expected: Some(expected),
        }),
        _ => None,
    }
}
