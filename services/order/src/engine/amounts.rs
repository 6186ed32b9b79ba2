//! What the shop states of an order: what it costs, if that is not the price of its units.
//!
//! The stock knows quantities and no money. So the ledger notes the amount as soon as it has the
//! order, and the request is answered after that. The shop learns of the order by the answer, so no
//! payment of it comes before. A request that ends in between has an unknown outcome, and its
//! repeat notes the amount.

use domain::{BuyerId, IdempotencyKey, ItemId, Order, OrderId, OrderState, Quantity, Stated};
use tokio::time::Instant;

use super::{Engine, EngineError, KnownItem, OrderView, Placed, Price, orders::placed_before};

/// Who states an amount. The one who holds the token of a buyer may be no shop, and must not choose
/// what to pay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatedBy {
    /// An admin, who may state anything.
    Admin,
    /// A buyer, who states what the units cost now, or more.
    Buyer,
    /// A buyer, who states less, or whose amount was not compared with what the units cost now. It
    /// is for an order whose units cost no more.
    BuyerUnchecked,
}

impl StatedBy {
    /// Whether an order whose units cost this `price`, and which has no amount yet, gets this one.
    /// The price may have changed since the order was made, or while it took its units.
    fn may_set(self, amount: u64, price: u64, is_repeat: bool) -> bool {
        let is_new_at_a_price = self == Self::Buyer && !is_repeat;
        self == Self::Admin || is_new_at_a_price || amount >= price
    }
}

impl Engine {
    /// The result for an order of which the shop states this, if that is noted by then.
    pub(super) async fn as_stated(
        &self,
        placed: Placed,
        (stated, by): (&Stated, StatedBy),
        until: Instant,
    ) -> Result<Placed, EngineError> {
        let Placed::Order {
            order: OrderView { id, price, .. },
            replayed,
            ..
        } = placed
        else {
            return Ok(placed);
        };
        let may_set = |price, amount| by.may_set(amount, price, replayed);
        let noted = self.note_stated((id, price), stated, may_set, until);
        let noted = self.with_deadline(until, noted);
        // The order exists, whatever fails here.
        let noted = noted.await.map_err(EngineError::after_change)?;
        Ok(noted.map_or(Placed::OtherAmount, |order| {
            placed_before(order, price, replayed)
        }))
    }

    /// The order, of which this is stated. `None`: it costs something else, for good.
    async fn note_stated(
        &self,
        (id, price): (OrderId, Price),
        stated: &Stated,
        may_set: impl Fn(u64, u64) -> bool,
        until: Instant,
    ) -> Result<Option<Order>, EngineError> {
        // The deadline ends it.
        loop {
            let order = self.wait_for_order(id, 0, until).await?;
            if matches!(order.state, OrderState::Cancelled | OrderState::Rejected) {
                return Ok(Some(order));
            }
            let mut all = order.stated.with(stated);
            let costs = price.given(order.price).total(order.quantity, stated);
            if price.of_order(&order) == costs {
                all.amount = order.stated.amount;
            } else if order.stated.amount.is_some()
                || order.payment.is_some()
                || !may_set(price.of_order(&order), costs)
            {
                return Ok(None);
            }
            if all == order.stated {
                return Ok(Some(order));
            }
            let changed = Order {
                stated: all,
                ..order
            };
            let set = self.ledger.set_stated(changed).await;
            if let Some(order) = set.map_err(EngineError::of_change)? {
                return Ok(Some(order));
            }
        }
    }
}

impl Engine {
    /// Whether a new order for the item is refused before it takes units, as far as this process
    /// knows. A crowd that comes too late must cost no look at the price.
    pub(crate) async fn refuses_new_orders(&self, item: &ItemId) -> Result<bool, EngineError> {
        let known = self.known(item).await?;
        Ok(known.is_some_and(|known| known.stock.refuses_new_orders()))
    }

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
        if let Self::Order { order, .. } = &mut self {
            order.price = given;
        }
        self
    }

    /// The result for an order that shall cost the price of its units.
    pub(super) fn at_price(self) -> Self {
        match self {
            Self::Order { order, .. } if order.amount() != order.price.amount(order.quantity) => {
                Self::OtherAmount
            }
            placed => placed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StatedBy;

    #[test]
    fn only_an_admin_makes_an_order_that_exists_cheaper() {
        for (by, amount, of_a_new_one, of_a_repeat) in [
            (StatedBy::Admin, 0, true, true),
            (StatedBy::Buyer, 500, true, true),
            (StatedBy::Buyer, 700, true, true),
            // The price rose while the order took its units, or has fallen since.
            (StatedBy::Buyer, 499, true, false),
            (StatedBy::BuyerUnchecked, 0, false, false),
            (StatedBy::BuyerUnchecked, 499, false, false),
            (StatedBy::BuyerUnchecked, 700, true, true),
        ] {
            let may_set = [false, true].map(|is_repeat| by.may_set(amount, 500, is_repeat));
            assert_eq!(may_set, [of_a_new_one, of_a_repeat], "{amount} by {by:?}");
        }
    }
}
