//! Lists.

use std::time::Duration;

use async_trait::async_trait;
use domain::{BuyerId, ItemId, Order, OrderId, OrderState};
use jiff::Timestamp;
use sqlx::FromRow;
use uuid::Uuid;

use super::{
    Pool, QueryAs, Row, Store, list,
    sql::listing::{
        BUYER_ORDERS, ENTRY, HELD_BY_END, ITEM_ORDERS, ITEMS, JOURNAL, NEXT, NEXT_CONFIRMED,
        NEXT_HELD, NEXT_REFUND_DUE, NEXT_REJECTED, NEXT_UNDONE, PAYMENTS_DUE, REFUNDS_DUE, SCAN,
        SOME_ITEMS,
    },
    step_reads,
    webhooks::milliseconds,
};
use crate::{
    JournalEntry, LedgerError, ListedItem, Listing, Page,
    columns::{JournalColumns, ListedColumns, OrderColumns},
    convert::{signed, unsigned},
    listing::{self, Lists},
};

#[async_trait]
impl Listing for Store {
    async fn list_items(
        &self,
        after: Option<&ItemId>,
        at_most: usize,
    ) -> Result<Page<ListedItem, ItemId>, LedgerError> {
        let items = sqlx::query_as::<_, ListedColumns>(ITEMS);
        let items = items.bind(after.map_or("", ItemId::as_str));
        page(&self.lists, items, at_most, |listed: &ListedItem| {
            listed.item.id.clone()
        })
        .await
    }

    async fn listed_items(&self, ids: &[ItemId]) -> Result<Vec<ListedItem>, LedgerError> {
        let rows = sqlx::query_as::<_, ListedColumns>(SOME_ITEMS)
            .bind(list(ids.iter().map(ItemId::as_str))?)
            .fetch_all(step_reads(self))
            .await?;
        rows.into_iter().map(ListedItem::try_from).collect()
    }

    async fn list_item_orders(
        &self,
        item: &ItemId,
        state: Option<OrderState>,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<Order, OrderId>, LedgerError> {
        listing::item_orders(self, item, state, after, at_most).await
    }

    async fn list_buyer_orders(
        &self,
        buyer: &BuyerId,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<Order, OrderId>, LedgerError> {
        let orders = sqlx::query_as::<_, OrderColumns>(BUYER_ORDERS)
            .bind(buyer.as_str())
            .bind(after.map_or(Uuid::nil(), |after| after.as_uuid()));
        page(&self.lists, orders, at_most, |order: &Order| order.id).await
    }

    async fn list_refunds_due(
        &self,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<Order, OrderId>, LedgerError> {
        let orders = sqlx::query_as::<_, OrderColumns>(REFUNDS_DUE)
            .bind(after.map_or(Uuid::nil(), |after| after.as_uuid()));
        page(&self.lists, orders, at_most, |order: &Order| order.id).await
    }

    async fn list_payments_due(
        &self,
        after: Option<u64>,
        at_most: usize,
    ) -> Result<Page<JournalEntry, u64>, LedgerError> {
        let entries = sqlx::query_as::<_, JournalColumns>(PAYMENTS_DUE);
        let entries = entries.bind(signed(after.unwrap_or(0)));
        page(&self.lists, entries, at_most, |entry: &JournalEntry| {
            entry.id
        })
        .await
    }

    async fn list_journal(
        &self,
        item: &ItemId,
        before: Option<u64>,
        at_most: usize,
    ) -> Result<Page<JournalEntry, u64>, LedgerError> {
        let entries = sqlx::query_as::<_, JournalColumns>(JOURNAL)
            .bind(item.as_str())
            .bind(before.map_or(i64::MAX, signed));
        page(&self.lists, entries, at_most, |entry: &JournalEntry| {
            entry.id
        })
        .await
    }

    async fn held_units_by_end(
        &self,
        item: &ItemId,
        from: Timestamp,
        width: Duration,
        slots: u16,
    ) -> Result<Vec<u64>, LedgerError> {
        let rows = sqlx::query_as(HELD_BY_END)
            .bind(item.as_str())
            .bind(from.as_millisecond())
            .bind(milliseconds(width).max(1))
            .bind(i64::from(slots))
            .fetch_all(&self.audits)
            .await?;
        listing::in_slots(slots, rows)
    }

    async fn journal_entry(&self, id: u64) -> Result<Option<JournalEntry>, LedgerError> {
        let row = sqlx::query_as::<_, JournalColumns>(ENTRY);
        let row = row.bind(signed(id)).fetch_optional(&self.lists).await?;
        row.map(JournalEntry::try_from).transpose()
    }
}

/// A page of a list. The last value of its statement is the number of rows to read: one more than
/// the page has tells whether the list continues.
pub(super) async fn page<C, T, K>(
    pool: &Pool,
    list: QueryAs<'_, C>,
    at_most: usize,
    key: fn(&T) -> K,
) -> Result<Page<T, K>, LedgerError>
where
    C: for<'r> FromRow<'r, Row> + Send + Unpin,
    T: TryFrom<C, Error = LedgerError>,
{
    let rows = list
        .bind(signed(at_most as u64 + 1))
        .fetch_all(pool)
        .await?;
    let rows = rows.into_iter().map(T::try_from);
    Ok(Page::cut(rows.collect::<Result<_, _>>()?, at_most, key))
}

#[async_trait]
impl Lists for Store {
    async fn scan(
        &self,
        after: OrderId,
        last: OrderId,
        at_most: usize,
    ) -> Result<Option<(OrderId, usize)>, LedgerError> {
        let end = sqlx::query_as::<_, (Uuid, i64)>(SCAN)
            .bind(after.as_uuid())
            .bind(last.as_uuid())
            .bind(signed(at_most as u64))
            .fetch_optional(&self.lists)
            .await?;
        end.map(|(id, count)| Ok((id.into(), unsigned::<i64>("count", count)? as usize)))
            .transpose()
    }

    async fn next_of(
        &self,
        item: &ItemId,
        state: OrderState,
        after: OrderId,
        last: OrderId,
    ) -> Result<Option<OrderId>, LedgerError> {
        let (statement, undone) = match state {
            OrderState::Held => (NEXT_HELD, None),
            OrderState::RefundDue => (NEXT_REFUND_DUE, None),
            OrderState::Rejected => (NEXT_REJECTED, None),
            OrderState::Confirmed => (NEXT_CONFIRMED, None),
            OrderState::Expired => (NEXT, None),
            OrderState::Cancelled | OrderState::Refunded => (NEXT_UNDONE, Some(state.as_str())),
        };
        let mut next = sqlx::query_scalar::<_, Uuid>(statement)
            .bind(after.as_uuid())
            .bind(last.as_uuid())
            .bind(item.as_str());
        if let Some(state) = undone {
            next = next.bind(state);
        }
        let next = next.fetch_optional(&self.lists).await?;
        Ok(next.map(OrderId::from))
    }

    async fn item_orders(
        &self,
        item: &ItemId,
        state: Option<OrderState>,
        after: OrderId,
        last: OrderId,
        at_most: usize,
    ) -> Result<Vec<Order>, LedgerError> {
        let rows = sqlx::query_as::<_, OrderColumns>(ITEM_ORDERS)
            .bind(after.as_uuid())
            .bind(last.as_uuid())
            .bind(item.as_str())
            .bind(state.map(OrderState::as_str))
            .bind(signed(at_most as u64))
            .fetch_all(&self.lists)
            .await?;
        rows.into_iter().map(Order::try_from).collect()
    }
}
