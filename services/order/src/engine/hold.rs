//! Extending the hold of an order, and naming the checkout session in which it is being paid.
//!
//! The caller names how long the hold shall be in all, counted from the creation of the order. A
//! repeat therefore asks for the same end, whenever it comes. Only the ledger knows the end of a
//! hold: expiry is a transition there, decided on the version that an extension raises.

use std::time::Duration;

use domain::{Order, OrderId, OrderState, SessionId};
use jiff::Timestamp;

use super::{Caller, Engine, EngineError, Extended};

/// What a request changes of a hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HoldChange {
    /// The length of the whole hold in seconds. `None`: it stays as it is.
    pub seconds: Option<u32>,
    /// The provider's checkout session in which the order or cart is paid from now on. `None`: as
    /// before.
    pub session: Option<SessionId>,
}

impl Engine {
    /// Extends the hold so that it ends so many seconds after the order was created, and names the
    /// checkout session. A hold never gets shorter.
    pub async fn extend(
        &self,
        id: OrderId,
        caller: &Caller,
        change: &HoldChange,
    ) -> Result<Extended<Order>, EngineError> {
        let extend_once = |until| async move {
            let order = self.recorded_order(id, caller.buyer(), until).await?;
            match order.filter(|order| caller.may_change(&order.buyer)) {
                Some(order) => self.try_extend(order, caller, change).await,
                None => Ok(Some(Extended::NotFound)),
            }
        };
        self.in_rounds(extend_once).await
    }

    /// `None`: a concurrent transition was faster.
    async fn try_extend(
        &self,
        order: Order,
        caller: &Caller,
        change: &HoldChange,
    ) -> Result<Option<Extended<Order>>, EngineError> {
        if let Some(cart) = order.cart {
            return Ok(Some(Extended::InCart(cart)));
        }
        let Some(known) = self.known(&order.item).await? else {
            return Ok(Some(Extended::NotFound));
        };
        let max_seconds = known.item.max_hold_seconds;
        if change.seconds.is_some_and(|seconds| seconds > max_seconds) {
            let item = known.item.id.clone();
            return Ok(Some(Extended::TooLong { item, max_seconds }));
        }
        if order.state != OrderState::Held {
            return Ok(Some(Extended::Refused(order.state)));
        }
        let wanted = change.seconds.map(|seconds| end(&order, seconds));
        let expires_at = wanted.map_or(order.expires_at, |wanted| wanted.max(order.expires_at));
        let session = self.session_to_name(order.id.as_uuid(), change).await?;
        if session.is_none() && expires_at == order.expires_at {
            return Ok(Some(Extended::Done(order)));
        }
        let admin = caller.admin().map(AsRef::as_ref);
        let extended = self.ledger.extend_by(&order, expires_at, session, admin);
        let extended = extended.await;
        let extended = extended.map_err(EngineError::of_change)?;
        Ok(extended.map(Extended::Done))
    }
}

/// The end of a hold of `seconds`. An order without the time of its creation keeps its end: counted
/// from that, each repeat would extend it again.
fn end(order: &Order, seconds: u32) -> Timestamp {
    let after = |time: Timestamp, seconds: u32| {
        time.saturating_add(Duration::from_secs(seconds.into()))
            .unwrap_or(time)
    };
    match order.created_at {
        Some(created_at) => after(created_at, seconds),
        None => order.expires_at,
    }
}
