//! Extending the holds of a cart, all lines at once, and naming the checkout session in which it is
//! paid.

use std::time::Duration;

use domain::{Cart, CartId, CartState, ItemId};

use super::super::{Caller, Engine, EngineError, Extended, HoldChange};

impl Engine {
    /// Extends the holds of all lines so that they end so many seconds after the first line took
    /// its units, and names the checkout session. A hold never gets shorter.
    pub async fn extend_cart(
        &self,
        id: CartId,
        caller: &Caller,
        change: &HoldChange,
    ) -> Result<Extended<Cart>, EngineError> {
        self.in_rounds(|_| self.extend_cart_once(id, caller, change))
            .await
    }

    /// `None`: a concurrent change was faster.
    async fn extend_cart_once(
        &self,
        id: CartId,
        caller: &Caller,
        change: &HoldChange,
    ) -> Result<Option<Extended<Cart>>, EngineError> {
        let Some(cart) = self.cart_to_change(id, caller).await? else {
            return Ok(Some(Extended::NotFound));
        };
        if let Some(seconds) = change.seconds {
            let shortest = self.shortest_cap(&cart).await?;
            if let Some((max_seconds, item)) = shortest.filter(|(max, _)| seconds > *max) {
                return Ok(Some(Extended::TooLong { item, max_seconds }));
            }
        }
        if cart.state != CartState::Held {
            return Ok(Some(Extended::Refused(cart.state)));
        }
        let session = self.session_to_name(cart.id.as_uuid(), change).await?;
        let hold = change
            .seconds
            .map(|seconds| Duration::from_secs(seconds.into()));
        if session.is_none() && hold.is_none() {
            return Ok(Some(Extended::Done(cart)));
        }
        let admin = caller.admin().map(AsRef::as_ref);
        let extended = self.ledger.extend_cart_by(&cart, hold, session, admin);
        let extended = extended.await;
        let extended = extended.map_err(EngineError::of_change)?;
        Ok(extended.map(Extended::Done))
    }

    /// The longest hold that all items of the cart allow, and the item that allows no longer one.
    async fn shortest_cap(&self, cart: &Cart) -> Result<Option<(u32, ItemId)>, EngineError> {
        let mut caps = Vec::with_capacity(cart.lines.len());
        for line in &cart.lines {
            if let Some(known) = self.known(&line.item).await? {
                caps.push((known.item.max_hold_seconds, line.item.clone()));
            }
        }
        Ok(caps.into_iter().min_by_key(|(max_seconds, _)| *max_seconds))
    }
}
