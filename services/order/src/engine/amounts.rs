//! What an order costs, if the shop says something else than the price of its units.
//!
//! The stock knows quantities and no money. So the ledger notes the amount as soon as it has the order, and
//! the request is answered after that. The shop learns of the order by the answer, so no payment of it comes
//! before. A request that ends in between has an unknown outcome, and its repeat notes the amount.

use domain::{Order, OrderId, OrderState};
use tokio::time::Instant;

use super::{Engine, EngineError, Placed, Price, orders::placed_before};

impl Engine {
    /// The result for an order that shall cost this, of a request that began then.
    pub(crate) async fn at_amount(
        &self,
        placed: Placed,
        amount: u64,
        began: Instant,
    ) -> Result<Placed, EngineError> {
        let Placed::Order {
            id,
            price,
            replayed,
            ..
        } = placed
        else {
            return Ok(placed);
        };
        let until = began + self.settings.order_timeout;
        let costs = self.with_deadline(until, self.note_amount(id, price, amount, until));
        // The order exists, whatever fails here.
        let costs = costs.await.map_err(EngineError::after_change)?;
        Ok(costs.map_or(Placed::OtherAmount, |order| {
            placed_before(order, price, replayed)
        }))
    }

    /// The order, which costs this. `None`: it costs something else, for good.
    async fn note_amount(
        &self,
        id: OrderId,
        price: Price,
        amount: u64,
        until: Instant,
    ) -> Result<Option<Order>, EngineError> {
        // The deadline ends it.
        loop {
            let order = self.wait_for_order(id, 0, until).await?;
            let is_over = matches!(order.state, OrderState::Cancelled | OrderState::Rejected);
            if is_over || price.of_order(&order) == amount {
                return Ok(Some(order));
            }
            if order.amount.is_some() || order.payment.is_some() {
                return Ok(None);
            }
            let set = self.ledger.set_amount(&order, amount).await;
            if let Some(order) = set.map_err(EngineError::of_change)? {
                return Ok(Some(order));
            }
        }
    }
}

impl Placed {
    /// The result for an order that shall cost the price of its units.
    pub(crate) fn at_price(self) -> Self {
        match self {
            Self::Order {
                amount,
                price,
                quantity,
                ..
            } if amount != price.amount(quantity) => Self::OtherAmount,
            placed => placed,
        }
    }
}
