//! Lists of items, orders, and money that must be returned, page by page.
//!
//! They show what the ledger has recorded. An order that was acknowledged before that
//! (`respond-async`, or durability `accepted` or `replicated`) follows within moments.

use std::time::Duration;

use domain::{BuyerId, ItemId, Order, OrderId, OrderState, Quantity};
use jiff::Timestamp;
use ledger::{JournalEntry, ListedItem, Page};
use serde::Deserialize;

use super::{Engine, EngineError};

/// An order, and what the ledger implies about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedOrder {
    /// The order.
    pub order: Order,
    /// Quantity times the price of a unit, in the currency's smallest unit. The price of an item
    /// never changes.
    pub amount: u64,
    /// ISO 4217.
    pub currency: String,
    /// When the units were taken. `None`: they were taken again since, and the ledger knows only the
    /// deadline of the latest hold.
    pub created_at: Option<Timestamp>,
}

/// Money that must be returned to a buyer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefundDue {
    /// An order that is `refund_due`.
    Order(ListedOrder),
    /// A payment that no order could take.
    Payment(UnmatchedPayment),
}

/// A payment that no order could take, as it was reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmatchedPayment {
    /// Number of the journal entry.
    pub entry: u64,
    /// When it was reported first.
    pub reported_at: Timestamp,
    /// The item of the order.
    pub item: ItemId,
    /// The order that it was reported for.
    pub order: OrderId,
    /// The state of that order at the time.
    pub state: OrderState,
    /// The provider's id of the payment.
    pub payment: String,
    /// The amount, if it was reported.
    pub amount: Option<u64>,
    /// Currency of the item, ISO 4217.
    pub currency: String,
}

/// A place in the list of money that must be returned: orders first, then payments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefundKey {
    /// Behind this order.
    Order(OrderId),
    /// Behind all orders and this journal entry.
    Payment(u64),
}

/// The parts of a journal entry that describe an unmatched payment.
#[derive(Deserialize)]
struct PaidOrder {
    order: OrderId,
    state: OrderState,
}

#[derive(Deserialize)]
struct Reported {
    payment: String,
    amount_cents: Option<u64>,
}

impl Engine {
    /// All items, by id.
    pub async fn list_items(
        &self,
        after: Option<&ItemId>,
        at_most: usize,
    ) -> Result<Page<ListedItem, ItemId>, EngineError> {
        Ok(self.ledger.list_items(after, at_most).await?)
    }

    /// The orders of an item, those in one state or all.
    pub async fn list_item_orders(
        &self,
        item: &ItemId,
        state: Option<OrderState>,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<ListedOrder, OrderId>, EngineError> {
        let page = self
            .ledger
            .list_item_orders(item, state, after, at_most)
            .await?;
        self.with_amounts(page).await
    }

    /// The orders of a buyer, of all items and in all states.
    pub async fn list_buyer_orders(
        &self,
        buyer: &BuyerId,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<ListedOrder, OrderId>, EngineError> {
        let page = self.ledger.list_buyer_orders(buyer, after, at_most).await?;
        self.with_amounts(page).await
    }

    /// Money that must be returned: orders that are `refund_due`, then payments that no order could
    /// take.
    pub async fn list_refunds_due(
        &self,
        after: Option<RefundKey>,
        at_most: usize,
    ) -> Result<Page<RefundDue, RefundKey>, EngineError> {
        let after = match after {
            Some(RefundKey::Payment(entry)) => return self.payments(Some(entry), at_most).await,
            Some(RefundKey::Order(id)) => Some(id),
            None => None,
        };
        let orders = self.ledger.list_refunds_due(after, at_most).await?;
        let orders = self.with_amounts(orders).await?;
        let mut rows: Vec<_> = orders.rows.into_iter().map(RefundDue::Order).collect();
        if let Some(next) = orders.next {
            let next = Some(RefundKey::Order(next));
            return Ok(Page { rows, next });
        }
        // A full page still has to know whether payments follow.
        let left = at_most - rows.len();
        let payments = self.payments(None, left.max(1)).await?;
        if left == 0 {
            let next = (!payments.rows.is_empty()).then_some(RefundKey::Payment(0));
            return Ok(Page { rows, next });
        }
        rows.extend(payments.rows);
        Ok(Page {
            rows,
            next: payments.next,
        })
    }

    async fn payments(
        &self,
        after: Option<u64>,
        at_most: usize,
    ) -> Result<Page<RefundDue, RefundKey>, EngineError> {
        let page = self.ledger.list_unmatched_payments(after, at_most).await?;
        let mut rows = Vec::with_capacity(page.rows.len());
        for entry in page.rows {
            let currency = self.price_of(&entry.entry.item).await?.currency;
            rows.extend(unmatched_payment(entry, currency).map(RefundDue::Payment));
        }
        Ok(Page {
            rows,
            next: page.next.map(RefundKey::Payment),
        })
    }

    async fn with_amounts(
        &self,
        page: Page<Order, OrderId>,
    ) -> Result<Page<ListedOrder, OrderId>, EngineError> {
        let mut rows = Vec::with_capacity(page.rows.len());
        for order in page.rows {
            let price = self.price_of(&order.item).await?;
            rows.push(price.listed(order));
        }
        Ok(Page {
            rows,
            next: page.next,
        })
    }

    async fn price_of(&self, item: &ItemId) -> Result<Price, EngineError> {
        Ok(self
            .known(item)
            .await?
            .map_or_else(Price::default, |known| Price {
                price: known.item.price_cents,
                currency: known.item.currency.clone(),
                hold: Some(Duration::from_secs(known.item.hold_seconds.into())),
            }))
    }
}

/// The properties of an item that its orders show. They never change.
#[derive(Default)]
struct Price {
    price: u64,
    currency: String,
    hold: Option<Duration>,
}

impl Price {
    fn listed(self, order: Order) -> ListedOrder {
        let first_hold = self.hold.filter(|_| order.attempt == 0);
        ListedOrder {
            amount: amount(self.price, order.quantity),
            currency: self.currency,
            created_at: first_hold.and_then(|hold| order.expires_at.checked_sub(hold).ok()),
            order,
        }
    }
}

fn amount(price: u64, quantity: Quantity) -> u64 {
    price.saturating_mul(u64::from(quantity.get()))
}

/// `None`: the entry was written by a release with other fields. The journal still shows it.
fn unmatched_payment(entry: JournalEntry, currency: String) -> Option<UnmatchedPayment> {
    let JournalEntry { id, at, entry } = entry;
    let paid: PaidOrder = serde_json::from_value(entry.before).ok()?;
    let reported: Reported = serde_json::from_value(entry.after).ok()?;
    Some(UnmatchedPayment {
        entry: id,
        reported_at: at,
        item: entry.item,
        order: paid.order,
        state: paid.state,
        payment: reported.payment,
        amount: reported.amount_cents,
        currency,
    })
}
