//! What an order costs, if the shop says something else than the price of its units.
//!
//! The stock knows quantities and no money. So the ledger notes the amount as soon as it has the
//! order, and the request is answered after that. The shop learns of the order by the answer, so no
//! payment of it comes before. A request that ends in between has an unknown outcome, and its
//! repeat notes the amount.

use domain::{BuyerId, IdempotencyKey, ItemId, Order, OrderId, OrderState, Quantity};
use tokio::time::Instant;

use super::{Engine, EngineError, KnownItem, Placed, Price, orders::placed_before};

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

impl Engine {
    /// What a unit costs now, for a new order of this buyer.
    pub(crate) async fn current_price(
        &self,
        item: &ItemId,
        buyer: &BuyerId,
        quantity: Quantity,
    ) -> Result<Price, EngineError> {
        let Some(known) = self.known(item).await? else {
            return Ok(Price::default());
        };
        let seen = known.stock.foresee(buyer, quantity).await.price;
        let unit = self.unit_price(&known, seen).await?;
        Ok(Price::of(&known.item).given(Some(unit)))
    }

    /// The price that the buyer's home has told, or else that of the ledger.
    pub(super) async fn unit_price(
        &self,
        known: &KnownItem,
        seen: Option<Option<u64>>,
    ) -> Result<u64, EngineError> {
        let first = known.item.price;
        Ok(match seen {
            Some(price) => price.unwrap_or(first),
            None => {
                let item = self.ledger.item(&known.item.id).await?;
                item.map_or(first, |item| item.current_price())
            }
        })
    }

    /// Whether an earlier request has placed this order.
    pub(crate) async fn is_placed(
        &self,
        item: &ItemId,
        buyer: &BuyerId,
        key: &IdempotencyKey,
    ) -> Result<bool, EngineError> {
        let id = OrderId::derive(item, item.tag(), buyer, key);
        Ok(self.find_order(id, Some(buyer)).await?.is_some())
    }
}

impl Placed {
    /// The result for an order that has this price.
    pub(super) fn given(mut self, given: Price) -> Self {
        if let Self::Order {
            price,
            amount,
            quantity,
            ..
        } = &mut self
        {
            (*price, *amount) = (given, given.amount(*quantity));
        }
        self
    }

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
