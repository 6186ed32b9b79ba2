//! Checkout sessions at the payment provider: which one counts for an order or a cart, and what
//! happens when it ends without a payment.
//!
//! A buyer who goes back and pays again gets a new session, while the old one lives on until it
//! expires. Its end must not cancel what is being paid in the new one. So the shop names each
//! session to the order, and only the end of the one that was named last cancels it. If the shop
//! names none, the hold ends by itself. A session is named once: a request that was delayed, and
//! names an older session again, does not bring that session back.
//!
//! Naming a session raises the version of its order or cart, and a cancellation is made for a
//! version. The order is read first and its session after that. So whatever is named in between
//! raises the version on which the cancellation was decided, and the order is read again.

use domain::{Cart, CartId, CartState, Order, OrderId, OrderState, SessionId};
use ledger::CartStep;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Ended, Engine, EngineError, HoldChange, Purchase};

/// Result of the end of a checkout session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEnd<T: Purchase> {
    /// The order or cart has named no session.
    Unnamed,
    /// The order or cart has named another session last.
    Superseded,
    /// It was the session that counts: this is what the cancellation has come to.
    Ended(Ended<T>),
}

impl Engine {
    /// Cancels a held order, if it has named this checkout session last.
    pub async fn end_session(
        &self,
        id: OrderId,
        session: &SessionId,
    ) -> Result<SessionEnd<Order>, EngineError> {
        self.in_rounds(|until| self.end_session_once(id, session, until))
            .await
    }

    /// `None`: the order has changed meanwhile, and must be read again.
    async fn end_session_once(
        &self,
        id: OrderId,
        session: &SessionId,
        until: Instant,
    ) -> Result<Option<SessionEnd<Order>>, EngineError> {
        let Some(order) = self.recorded_order(id, None, until).await? else {
            return Ok(Some(SessionEnd::Ended(Ended::NotFound)));
        };
        if let Some(cart) = order.cart {
            return Ok(Some(SessionEnd::Ended(Ended::InCart(cart))));
        }
        if let Some(other) = self.other_session(order.id.as_uuid(), session).await? {
            return Ok(Some(other));
        }
        let ended = match order.state {
            OrderState::Cancelled => Some(Ended::Done(order)),
            OrderState::Held => {
                let cancelled = self.step(&order, OrderState::Cancelled, None, None).await?;
                cancelled.map(Ended::Done)
            }
            state => Some(Ended::Refused(state)),
        };
        Ok(ended.map(SessionEnd::Ended))
    }

    /// The same for a cart.
    pub async fn end_cart_session(
        &self,
        id: CartId,
        session: &SessionId,
    ) -> Result<SessionEnd<Cart>, EngineError> {
        self.in_rounds(|_| self.end_cart_session_once(id, session))
            .await
    }

    /// `None`: the cart has changed meanwhile, and must be read again.
    async fn end_cart_session_once(
        &self,
        id: CartId,
        session: &SessionId,
    ) -> Result<Option<SessionEnd<Cart>>, EngineError> {
        let Some(cart) = self.ledger.cart(id).await? else {
            return Ok(Some(SessionEnd::Ended(Ended::NotFound)));
        };
        if let Some(other) = self.other_session(cart.id.as_uuid(), session).await? {
            return Ok(Some(other));
        }
        let ended = match cart.state {
            CartState::Cancelled => Some(Ended::Done(cart)),
            CartState::Held => {
                let step = CartStep::to(&cart, CartState::Cancelled);
                let stepped = self.step_cart(&step).await?;
                stepped.map(|stepped| Ended::Done(stepped.cart))
            }
            state => Some(Ended::Refused(state)),
        };
        Ok(ended.map(SessionEnd::Ended))
    }

    /// Why the end of this session does nothing. `None`: it is the one that the order or cart has
    /// named last.
    async fn other_session<T: Purchase>(
        &self,
        target: Uuid,
        session: &SessionId,
    ) -> Result<Option<SessionEnd<T>>, EngineError> {
        Ok(match self.ledger.named_session(target).await? {
            None => Some(SessionEnd::Unnamed),
            Some(named) if named != *session => Some(SessionEnd::Superseded),
            Some(_) => None,
        })
    }

    /// The session that the change names, unless the order or cart has named it before. A repeat
    /// changes nothing, however late it is: a newer session stays the one that counts.
    pub(super) async fn session_to_name<'a>(
        &self,
        target: Uuid,
        change: &'a HoldChange,
    ) -> Result<Option<&'a SessionId>, EngineError> {
        let Some(session) = &change.session else {
            return Ok(None);
        };
        let is_known = self.ledger.has_named(target, session).await?;
        Ok((!is_known).then_some(session))
    }
}
