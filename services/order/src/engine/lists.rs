//! Lists of items, orders, and money that must be returned, page by page.
//!
//! They show what the ledger has recorded. An order that was acknowledged before that
//! (`respond-async`, or durability `accepted` or `replicated`) follows within moments.

use std::sync::Arc;

use domain::{BuyerId, CartId, ItemId, Order, OrderId, OrderState};
use ledger::Page;

use super::{Ended, Engine, EngineError, OrderView, Price, UnmatchedPayment};

/// Money that must be returned to a buyer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefundDue {
    /// An order that is `refund_due`.
    Order(OrderView),
    /// A payment that no order could take, or whose refund has failed.
    Payment(UnmatchedPayment),
}

/// A place in the list of money that must be returned: orders first, then payments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefundKey {
    /// Behind this order.
    Order(OrderId),
    /// Behind all orders and this journal entry.
    Payment(u64),
}

/// Result of noting that money was returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefundDone {
    /// It was returned, now or before.
    Done(RefundDue),
    /// The order is a line of this cart, whose money is returned as a whole.
    InCart(CartId),
    /// No such money is due.
    NotFound,
}

/// Entries of payments that one statement reads, at least: some of them may name none.
const PAYMENTS_READ_MIN: usize = 64;

impl Engine {
    /// The orders of an item, those in one state or all.
    pub async fn list_item_orders(
        &self,
        item: &ItemId,
        state: Option<OrderState>,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<OrderView, OrderId>, EngineError> {
        let page = self
            .ledger
            .list_item_orders(item, state, after, at_most)
            .await?;
        self.view_orders(page).await
    }

    /// The orders of a buyer, of all items and in all states.
    pub async fn list_buyer_orders(
        &self,
        buyer: &BuyerId,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<OrderView, OrderId>, EngineError> {
        let page = self.ledger.list_buyer_orders(buyer, after, at_most).await?;
        self.view_orders(page).await
    }

    /// Money that must be returned: orders that are `refund_due`, then payments that no order could
    /// take or whose refund has failed.
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
        let mut orders = self.view_orders(orders).await?;
        self.share_amounts(&mut orders.rows).await?;
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

    /// Notes that the money of a row was returned. A repeat changes nothing.
    pub async fn refund_done(
        &self,
        due: RefundKey,
        actor: &Arc<str>,
    ) -> Result<RefundDone, EngineError> {
        match due {
            RefundKey::Order(id) => self.order_refunded(id, actor).await,
            RefundKey::Payment(entry) => self.payment_refunded(entry, actor).await,
        }
    }

    async fn order_refunded(
        &self,
        id: OrderId,
        actor: &Arc<str>,
    ) -> Result<RefundDone, EngineError> {
        Ok(match self.refund_due_order(id, actor).await? {
            Ended::Done(order) => {
                let order = self.view_order(order).await;
                let order = order.map_err(EngineError::after_change)?;
                RefundDone::Done(RefundDue::Order(order))
            }
            Ended::InCart(cart) => RefundDone::InCart(cart),
            // The money of a paid order is not due.
            Ended::NotFound | Ended::Refused(_) => RefundDone::NotFound,
        })
    }

    async fn payment_refunded(&self, entry: u64, actor: &str) -> Result<RefundDone, EngineError> {
        let Some(reported) = self.ledger.journal_entry(entry).await? else {
            return Ok(RefundDone::NotFound);
        };
        let currency = self
            .price_of(&reported.entry.item)
            .await?
            .currency
            .to_string();
        let Some(payment) = UnmatchedPayment::of(reported, currency) else {
            return Ok(RefundDone::NotFound);
        };
        let noted = self.ledger.note_refund_done(entry, actor).await;
        Ok(match noted.map_err(EngineError::of_change)? {
            true => RefundDone::Done(RefundDue::Payment(payment)),
            false => RefundDone::NotFound,
        })
    }

    async fn payments(
        &self,
        after: Option<u64>,
        at_most: usize,
    ) -> Result<Page<RefundDue, RefundKey>, EngineError> {
        let (mut rows, mut read, mut last) = (Vec::with_capacity(at_most), after, None);
        // An entry that an earlier release has written may name no payment. Only the last page may
        // have fewer rows than were asked for.
        loop {
            let number = at_most.max(PAYMENTS_READ_MIN);
            let page = self.ledger.list_payments_due(read, number).await?;
            for entry in page.rows {
                let (id, price) = (entry.id, self.price_of(&entry.entry.item).await?);
                let currency = price.currency.to_string();
                let Some(payment) = UnmatchedPayment::of(entry, currency) else {
                    continue;
                };
                if rows.len() == at_most {
                    let next = last.map(RefundKey::Payment);
                    return Ok(Page { rows, next });
                }
                rows.push(RefundDue::Payment(payment));
                last = Some(id);
            }
            read = page.next;
            if read.is_none() {
                return Ok(Page { rows, next: None });
            }
        }
    }

    async fn view_orders(
        &self,
        page: Page<Order, OrderId>,
    ) -> Result<Page<OrderView, OrderId>, EngineError> {
        let mut rows = Vec::with_capacity(page.rows.len());
        for order in page.rows {
            rows.push(self.view_order(order).await?);
        }
        Ok(Page {
            rows,
            next: page.next,
        })
    }

    /// The first price of a unit of the item. An unknown item has none.
    pub(super) async fn price_of(&self, item: &ItemId) -> Result<Price, EngineError> {
        let known = self.known(item).await?;
        Ok(known.map_or_else(Price::default, |known| Price::of(&known.item)))
    }
}
