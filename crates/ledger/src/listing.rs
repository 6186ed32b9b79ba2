//! Pages whose rows lie far apart: how far one page searches for them.
//!
//! A page of rows that a condition selects could read a whole sale before it is full, or all items
//! for a buyer of one. It ends after a bounded search instead, and its cursor continues there.

use async_trait::async_trait;
use domain::{BuyerId, ItemId, ItemTag, Order, OrderId, OrderState};

use crate::{
    LedgerError, Page,
    convert::{id_range, unsigned},
};

/// Orders that a page of one state reads at most.
const SCANNED_ORDERS_MAX: usize = 10_000;
/// Items that one statement searches for orders of a buyer, and statements of a page. Each item is
/// one search in the primary key.
const SEARCHED_ITEMS: usize = 1000;
const SEARCHES_MAX: usize = 5;

/// The statements behind the pages, for each database.
#[async_trait]
pub(crate) trait Lists: Sync {
    /// The last of the first `at_most` ids behind `after` and up to `last`, and their number.
    /// `None`: there are none.
    async fn scan(
        &self,
        after: OrderId,
        last: OrderId,
        at_most: usize,
    ) -> Result<Option<(OrderId, usize)>, LedgerError>;

    /// Orders of the item behind `after` and up to `last`, of one state or all, by id.
    async fn item_orders(
        &self,
        item: &ItemId,
        state: Option<OrderState>,
        after: OrderId,
        last: OrderId,
        at_most: usize,
    ) -> Result<Vec<Order>, LedgerError>;

    /// The tags of all items from `first` on, in order, without repetitions.
    async fn tags(&self, first: ItemTag, at_most: usize) -> Result<Vec<ItemTag>, LedgerError>;

    /// Orders of the buyer in these ranges, by id. A range begins behind its first id and ends with
    /// its last. Ranges are disjoint, and in order.
    async fn buyer_orders(
        &self,
        buyer: &BuyerId,
        ranges: &[[OrderId; 2]],
        at_most: usize,
    ) -> Result<Vec<Order>, LedgerError>;
}

/// Sums by slot, those before the first span and then each span, from the slots that have any.
pub(crate) fn in_slots(slots: u16, rows: Vec<(i64, i64)>) -> Result<Vec<u64>, LedgerError> {
    let mut units = vec![0; usize::from(slots) + 1];
    for (slot, sum) in rows {
        let slot: usize = unsigned("slot", slot)?;
        if let Some(units) = units.get_mut(slot) {
            *units += unsigned::<u64>("quantity", sum)?;
        }
    }
    Ok(units)
}

pub(crate) async fn item_orders(
    lists: &impl Lists,
    item: &ItemId,
    state: Option<OrderState>,
    after: Option<OrderId>,
    at_most: usize,
) -> Result<Page<Order, OrderId>, LedgerError> {
    let [first, last] = id_range(item.tag());
    let after = after.map_or(first, |after| after.max(first));
    let scanned = match state {
        Some(_) => lists.scan(after, last, SCANNED_ORDERS_MAX).await?,
        None => None,
    };
    // Rows behind the scan are left to the next page.
    let end = scanned
        .filter(|(_, count)| *count == SCANNED_ORDERS_MAX)
        .map(|(end, _)| end);
    let rows = lists
        .item_orders(item, state, after, end.unwrap_or(last), at_most + 1)
        .await?;
    let page = Page::cut(rows, at_most, |order| order.id);
    Ok(Page {
        next: page.next.or(end),
        ..page
    })
}

pub(crate) async fn buyer_orders(
    lists: &impl Lists,
    buyer: &BuyerId,
    after: Option<OrderId>,
    at_most: usize,
) -> Result<Page<Order, OrderId>, LedgerError> {
    let mut after = after.unwrap_or(OrderId::from_bytes([0; 16]));
    let mut found = Vec::new();
    for _ in 0..SEARCHES_MAX {
        let tags = lists.tags(after.tag(), SEARCHED_ITEMS).await?;
        // No order has the first id of a range, which may therefore be left out.
        let range = |tag: &ItemTag| {
            let [first, last] = OrderId::range_of(*tag, buyer);
            [first.max(after), last]
        };
        let ranges: Vec<_> = tags.iter().map(range).collect();
        let Some([_, searched]) = ranges.last().copied() else {
            return Ok(Page::cut(found, at_most, |order: &Order| order.id));
        };
        let missing = at_most + 1 - found.len();
        found.extend(lists.buyer_orders(buyer, &ranges, missing).await?);
        if found.len() > at_most || tags.len() < SEARCHED_ITEMS {
            return Ok(Page::cut(found, at_most, |order| order.id));
        }
        after = searched;
    }
    Ok(Page {
        rows: found,
        next: Some(after),
    })
}
