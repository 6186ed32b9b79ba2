//! Lists, read page by page.

use std::time::Duration;

use async_trait::async_trait;
use domain::{BuyerId, Item, ItemId, Order, OrderId, OrderState};
use jiff::Timestamp;

use crate::{JournalEntry, LedgerError};

/// Lists of items, orders, and money that must be returned.
///
/// Every list is in the order of its key, and a page starts behind the key of the page before it. A
/// page therefore costs the same wherever it lies, and a row occurs once at most, whatever is
/// written between two pages. A page that has a `next` has as many rows as were asked for, or at
/// least one if the list is that of one state. Only `next` tells whether the list continues.
#[async_trait]
pub trait Listing: Send + Sync + 'static {
    /// All items, by id.
    async fn list_items(
        &self,
        after: Option<&ItemId>,
        at_most: usize,
    ) -> Result<Page<ListedItem, ItemId>, LedgerError>;

    /// Those of these items that exist, by id, in one statement.
    async fn listed_items(&self, ids: &[ItemId]) -> Result<Vec<ListedItem>, LedgerError>;

    /// The recorded orders of an item, by id, those in one state or all.
    async fn list_item_orders(
        &self,
        item: &ItemId,
        state: Option<OrderState>,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<Order, OrderId>, LedgerError>;

    /// The recorded orders of a buyer, of all items and in all states, by id.
    async fn list_buyer_orders(
        &self,
        buyer: &BuyerId,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<Order, OrderId>, LedgerError>;

    /// The orders of all items that are `refund_due`, by id.
    async fn list_refunds_due(
        &self,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<Order, OrderId>, LedgerError>;

    /// The journal entries of payments whose money must be returned, oldest first: those that no
    /// order could take, and those whose refund has failed. Not those whose money was returned
    /// since, or that have paid something, whether it is what their entry names or not. A failed
    /// refund of an order that is still paid for is not due either, nor one of an order that is
    /// `refund_due`, which is listed itself.
    async fn list_payments_due(
        &self,
        after: Option<u64>,
        at_most: usize,
    ) -> Result<Page<JournalEntry, u64>, LedgerError>;

    /// The journal of an item, newest first: the entries before the entry `before`, or all.
    async fn list_journal(
        &self,
        item: &ItemId,
        before: Option<u64>,
        at_most: usize,
    ) -> Result<Page<JournalEntry, u64>, LedgerError>;

    /// Units of held orders of an item by the end of their hold: those that end before `from`, then
    /// one number for each of `slots` spans of `width`, with the last one open.
    async fn held_units_by_end(
        &self,
        item: &ItemId,
        from: Timestamp,
        width: Duration,
        slots: u16,
    ) -> Result<Vec<u64>, LedgerError>;

    /// One entry of the journal, of any item.
    async fn journal_entry(&self, id: u64) -> Result<Option<JournalEntry>, LedgerError>;
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T, K> {
    /// The rows, in the order of their keys.
    pub rows: Vec<T>,
    /// The key behind which the next page starts. `None`: the list ends with this page.
    pub next: Option<K>,
}

impl<T, K> Page<T, K> {
    /// The page of `rows`, which were read with one row more than `at_most`: that row shows whether
    /// the list continues.
    pub(crate) fn cut(mut rows: Vec<T>, at_most: usize, key: impl Fn(&T) -> K) -> Self {
        let continues = rows.len() > at_most;
        rows.truncate(at_most);
        let next = rows.last().filter(|_| continues).map(key);
        Self { rows, next }
    }

    /// The page with each row converted.
    pub fn map<U>(self, convert: impl FnMut(T) -> U) -> Page<U, K> {
        Page {
            rows: self.rows.into_iter().map(convert).collect(),
            next: self.next,
        }
    }
}

/// An item with the units of its segments, as the ledger has recorded them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedItem {
    /// The item.
    pub item: Item,
    /// Units that no order has.
    pub available: u64,
    /// Units of orders that wait for payment.
    pub held: u64,
    /// Units of paid orders.
    pub confirmed: u64,
    /// Units of orders that have ended, on their way back.
    pub returning: u64,
}

#[cfg(test)]
mod tests {
    use super::Page;

    #[test]
    fn only_a_row_too_many_continues_the_list() {
        let cut = |rows: &[u8], at_most| {
            let page = Page::cut(rows.to_vec(), at_most, |row| *row);
            (page.rows, page.next)
        };
        assert_eq!(cut(&[], 2), (vec![], None));
        assert_eq!(cut(&[1, 2], 2), (vec![1, 2], None));
        assert_eq!(cut(&[1, 2, 3], 2), (vec![1, 2], Some(2)));
    }
}
