//! Pages whose rows lie far apart: how far one page searches for them.
//!
//! A page of orders in one state could read a whole sale before it is full. It ends after a bounded
//! search instead, once it has a row, and its cursor continues there. Until then it searches on: an
//! empty page that has a next one would look like the end of the list. An index tells where the search
//! goes on. A console that asks again and again would otherwise read a whole sale to find no hold.
//!
//! No index has the confirmed and the expired orders: most orders of a sale become one of the two, and would
//! pay for it. Where nearly all of very many became the other one, a page reads on until it finds one.

use async_trait::async_trait;
use domain::{ItemId, Order, OrderId, OrderState};
use uuid::Uuid;

use crate::{
    LedgerError, Page,
    convert::{id_range, unsigned},
};

/// Orders that one statement of a page of one state reads at most.
const SCANNED_ORDERS_MAX: usize = 10_000;

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

    /// The first order of the item in this state behind `after` and up to `last`. If no index has the state,
    /// the first order in any state, unless counters say that the item has none in this one.
    async fn next_of(
        &self,
        item: &ItemId,
        state: OrderState,
        after: OrderId,
        last: OrderId,
    ) -> Result<Option<OrderId>, LedgerError>;

    /// Orders of the item behind `after` and up to `last`, of one state or all, by id.
    async fn item_orders(
        &self,
        item: &ItemId,
        state: Option<OrderState>,
        after: OrderId,
        last: OrderId,
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
    let mut after = after.map_or(first, |after| after.max(first));
    let read = async |after, end| {
        let rows = lists.item_orders(item, state, after, end, at_most + 1);
        Ok(Page::cut(rows.await?, at_most, |order: &Order| order.id))
    };
    let Some(state) = state else {
        return read(after, last).await;
    };
    loop {
        // Rows behind the scan are left to the next one.
        let Some(end) = end_of_scan(lists, after, last).await? else {
            return read(after, last).await;
        };
        let page = read(after, end).await?;
        if !page.rows.is_empty() {
            let next = page.next.or(Some(end));
            return Ok(Page { next, ..page });
        }
        let Some(next) = lists.next_of(item, state, end, last).await? else {
            return Ok(page);
        };
        after = before(next);
    }
}

/// The id before this one, of which there need not be an order.
fn before(id: OrderId) -> OrderId {
    Uuid::from_u128(id.as_uuid().as_u128() - 1).into()
}

/// Where a scan from here ends. `None`: it reads all orders up to the last one.
pub(crate) async fn end_of_scan(
    lists: &impl Lists,
    after: OrderId,
    last: OrderId,
) -> Result<Option<OrderId>, LedgerError> {
    let scanned = lists.scan(after, last, SCANNED_ORDERS_MAX).await?;
    Ok(scanned
        .filter(|(_, count)| *count == SCANNED_ORDERS_MAX)
        .map(|(end, _)| end))
}
