//! A payment of a cart whose holds have expired: its lines take units again, all or none.
//!
//! The lines take them one after the other, by item, as those of a new cart do. Each is held again
//! as soon as the ledger has recorded its units, while the cart is still expired. When all are, one
//! transaction confirms them with the cart. If one finds no units, one makes the money due and
//! frees those of the others. Only one of the two can happen, by this report, a repeat or another
//! one.
//!
//! A report that never comes to its end leaves lines that are held. A repeat goes on with them, and
//! otherwise they expire at the end of their own holds. Units that are recorded for a line later,
//! when its cart has changed, go straight back.

use domain::{Cart, CartState, Order, OrderState};
use stock::Acknowledge;
use tokio::time::Instant;

use super::{
    super::{Engine, EngineError, reacquire::Reacquired},
    RECORDED_SOON,
};

impl Engine {
    /// What the payment makes of the expired cart: `confirmed` if every line has its units, and
    /// else `refund_due`. `None`: a line has changed meanwhile, and the cart must be read again.
    pub(super) async fn reacquire_cart(
        &self,
        cart: &Cart,
        until: Instant,
    ) -> Result<Option<CartState>, EngineError> {
        let Some(lines) = self.recorded_lines(cart).await? else {
            return Ok(Some(CartState::RefundDue));
        };
        let may_take = |line: &Order| matches!(line.state, OrderState::Expired | OrderState::Held);
        if !lines.iter().all(may_take) {
            return Ok(None);
        }
        let missing: Vec<_> = lines
            .iter()
            .filter(|line| line.state == OrderState::Expired)
            .collect();
        let reacquired = self.reacquire_lines(&missing, until).await;
        reacquired.map_err(EngineError::after_change)
    }

    /// The orders of the lines, by item. `None`: one of them went with a drop of its item.
    async fn recorded_lines(&self, cart: &Cart) -> Result<Option<Vec<Order>>, EngineError> {
        let mut lines = Vec::with_capacity(cart.lines.len());
        for line in &cart.lines {
            let Some(order) = self.ledger.order(line.order).await? else {
                return Ok(None);
            };
            lines.push(order);
        }
        lines.sort_unstable_by(|one, other| one.item.cmp(&other.item));
        Ok(Some(lines))
    }

    async fn reacquire_lines(
        &self,
        missing: &[&Order],
        until: Instant,
    ) -> Result<Option<CartState>, EngineError> {
        let mut taken = Vec::with_capacity(missing.len());
        for (at, line) in missing.iter().enumerate() {
            // The lines before it are recorded at about the same time.
            let acknowledge = match at + 1 == missing.len() {
                true => Acknowledge::Recorded,
                false => Acknowledge::Accepted,
            };
            match self.reacquire(line, acknowledge, until).await? {
                Reacquired::Taken => taken.push(line.id.reacquire(line.attempt + 1)),
                Reacquired::Overtaken => return Ok(None),
                Reacquired::Refused => {
                    // Usually one transaction then releases all of them.
                    let soon = until.min(Instant::now() + RECORDED_SOON);
                    self.are_recorded(&taken, soon).await?;
                    return Ok(Some(CartState::RefundDue));
                }
            }
        }
        match self.are_recorded(&taken, until).await? {
            true => Ok(Some(CartState::Confirmed)),
            false => Err(EngineError::OutcomeUnknown(self.settings.order_timeout)),
        }
    }
}
