//! Lists on SQLite.

use std::time::Duration;

use async_trait::async_trait;
use domain::{BuyerId, ItemId, Order, OrderId, OrderState};
use jiff::Timestamp;
use uuid::Uuid;

use super::{SqliteLedger, item_columns, json, order_columns};
use crate::{
    JournalEntry, LedgerError, ListedItem, Listing, Page,
    columns::{JournalColumns, ListedColumns, OrderColumns},
    convert::{signed, unsigned},
    listing::{self, Lists},
};

/// Without `INDEXED BY`, SQLite may prefer the primary key and read every order.
pub(super) const BUYER_ORDERS: &str = concat!(
    "SELECT ",
    order_columns!(),
    " FROM orders INDEXED BY orders_of_buyer WHERE buyer = ? AND id > ? ORDER BY id LIMIT ?"
);

/// Items with the units of their segments.
macro_rules! listed_items {
    ($where:literal) => {
        concat!(
            "SELECT ",
            item_columns!(),
            ", (SELECT coalesce(sum(available), 0) FROM segments AS units WHERE units.item = items.id) AS available \
             , (SELECT coalesce(sum(held), 0) FROM segments AS units WHERE units.item = items.id) AS held \
             , (SELECT coalesce(sum(confirmed), 0) FROM segments AS units WHERE units.item = items.id) AS confirmed \
             , (SELECT coalesce(sum(\"returning\"), 0) FROM segments AS units WHERE units.item = items.id) AS \"returning\" \
             FROM items ",
            $where
        )
    };
}

/// Whether the entry of a failed refund tells of money that is due. While its order or cart is
/// still paid for, or was when a drop deleted it, nothing is; while that is `refund_due`, it is
/// listed itself.
macro_rules! refund_failed_is_due {
    () => {
        "EXISTS (SELECT 1 FROM payments AS owed WHERE owed.id = journal.after ->> 'payment' AND owed.due_refund = journal.after ->> 'refund' \
           AND NOT (owed.is_settled AND owed.returned_at IS NULL) \
           AND NOT EXISTS (SELECT 1 FROM orders WHERE orders.id = owed.order_id AND orders.payment = owed.id AND orders.state <> 'refunded') \
           AND NOT EXISTS (SELECT 1 FROM carts WHERE carts.id = owed.order_id AND carts.payment = owed.id AND carts.state <> 'refunded'))"
    };
}
pub(super) use refund_failed_is_due;

/// The columns of an entry. That of a failed refund has what is due of its payment now, while it is
/// listed, and then what an admin has returned: other refunds of the payment may have failed or
/// succeeded since it was written.
macro_rules! entry_columns {
    () => {
        "id, at AS at_ms, item, actor, action, token, before, \
         CASE WHEN action = 'refund_failed' THEN json_set(after, '$.due', coalesce( \
             (SELECT owed.due_amount FROM payments AS owed \
              WHERE owed.id = journal.after ->> 'payment' AND owed.due_refund = journal.after ->> 'refund'), \
             (SELECT done.after ->> 'due' FROM journal AS done \
              WHERE done.item = journal.item AND done.once = 'payment_refunded ' || journal.id), \
             after ->> 'due')) ELSE after END AS after"
    };
}

#[async_trait]
impl Listing for SqliteLedger {
    async fn list_items(
        &self,
        after: Option<&ItemId>,
        at_most: usize,
    ) -> Result<Page<ListedItem, ItemId>, LedgerError> {
        let rows =
            sqlx::query_as::<_, ListedColumns>(listed_items!("WHERE id > ? ORDER BY id LIMIT ?"));
        let rows = rows
            .bind(after.map_or("", ItemId::as_str))
            .bind(one_more(at_most))
            .fetch_all(&self.lists)
            .await?;
        let rows = rows.into_iter().map(ListedItem::try_from);
        Ok(Page::cut(
            rows.collect::<Result<_, _>>()?,
            at_most,
            |listed| listed.item.id.clone(),
        ))
    }

    async fn listed_items(&self, ids: &[ItemId]) -> Result<Vec<ListedItem>, LedgerError> {
        let ids: Vec<&str> = ids.iter().map(ItemId::as_str).collect();
        let rows = sqlx::query_as::<_, ListedColumns>(listed_items!(
            "WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"
        ));
        let rows = rows.bind(json(&ids)?);
        let rows = rows.fetch_all(&self.readers).await?;
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
        let rows = sqlx::query_as::<_, OrderColumns>(BUYER_ORDERS)
            .bind(buyer.as_str())
            .bind(after.map_or(Uuid::nil(), |after| after.as_uuid()))
            .bind(signed(at_most as u64 + 1))
            .fetch_all(&self.lists)
            .await?;
        Ok(Page::cut(orders(rows)?, at_most, |order| order.id))
    }

    /// Without `INDEXED BY`, SQLite may prefer the primary key and read every order.
    async fn list_refunds_due(
        &self,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<Order, OrderId>, LedgerError> {
        let rows = sqlx::query_as::<_, OrderColumns>(concat!(
            "SELECT ",
            order_columns!(),
            " FROM orders INDEXED BY orders_refund_due WHERE state = 'refund_due' AND id > ? ORDER BY id LIMIT ?"
        ));
        let rows = rows
            .bind(after.map_or(Uuid::nil(), |after| after.as_uuid()))
            .bind(one_more(at_most))
            .fetch_all(&self.lists)
            .await?;
        Ok(Page::cut(orders(rows)?, at_most, |order| order.id))
    }

    async fn list_payments_due(
        &self,
        after: Option<u64>,
        at_most: usize,
    ) -> Result<Page<JournalEntry, u64>, LedgerError> {
        let rows = sqlx::query_as::<_, JournalColumns>(concat!(
            "SELECT ",
            entry_columns!(),
            " FROM journal INDEXED BY journal_payments_due \
             WHERE action IN ('unmatched_payment', 'refund_failed') AND id > ? \
               AND (action <> 'refund_failed' OR ",
            refund_failed_is_due!(),
            ") \
               AND (action <> 'unmatched_payment' OR ( \
                     NOT EXISTS (SELECT 1 FROM journal AS done WHERE done.item = journal.item AND done.once = 'payment_refunded ' || journal.id) \
                 AND NOT EXISTS (SELECT 1 FROM payments AS paid WHERE paid.id = journal.after ->> 'payment' AND (paid.returned_at IS NOT NULL OR paid.is_settled \
                       OR EXISTS (SELECT 1 FROM orders WHERE orders.id = paid.order_id AND orders.payment = paid.id) \
                       OR EXISTS (SELECT 1 FROM carts WHERE carts.id = paid.order_id AND carts.payment = paid.id))))) \
             ORDER BY id LIMIT ?",
        ));
        let rows = rows
            .bind(signed(after.unwrap_or(0)))
            .bind(one_more(at_most))
            .fetch_all(&self.lists)
            .await?;
        let entries = rows.into_iter().map(JournalEntry::try_from);
        Ok(Page::cut(
            entries.collect::<Result<_, _>>()?,
            at_most,
            |entry| entry.id,
        ))
    }

    async fn list_journal(
        &self,
        item: &ItemId,
        before: Option<u64>,
        at_most: usize,
    ) -> Result<Page<JournalEntry, u64>, LedgerError> {
        let rows = sqlx::query_as::<_, JournalColumns>(
            "SELECT id, at AS at_ms, item, actor, action, token, before, after FROM journal \
             WHERE item = ? AND id < ? ORDER BY id DESC LIMIT ?",
        );
        let rows = rows
            .bind(item.as_str())
            .bind(before.map_or(i64::MAX, signed))
            .bind(one_more(at_most))
            .fetch_all(&self.lists)
            .await?;
        let entries = rows.into_iter().map(JournalEntry::try_from);
        Ok(Page::cut(
            entries.collect::<Result<_, _>>()?,
            at_most,
            |entry| entry.id,
        ))
    }

    async fn held_units_by_end(
        &self,
        item: &ItemId,
        from: Timestamp,
        width: Duration,
        slots: u16,
    ) -> Result<Vec<u64>, LedgerError> {
        let rows = sqlx::query_as(
            "SELECT CASE WHEN expires_at < ?2 THEN 0 ELSE min((expires_at - ?2) / ?3 + 1, ?4) END AS slot, sum(quantity) \
             FROM orders WHERE item = ?1 AND state = 'held' GROUP BY slot",
        );
        let rows = rows
            .bind(item.as_str())
            .bind(from.as_millisecond())
            .bind(i64::try_from(width.as_millis()).unwrap_or(i64::MAX).max(1))
            .bind(i64::from(slots))
            .fetch_all(&self.lists)
            .await?;
        listing::in_slots(slots, rows)
    }

    async fn journal_entry(&self, id: u64) -> Result<Option<JournalEntry>, LedgerError> {
        let row = sqlx::query_as::<_, JournalColumns>(concat!(
            "SELECT ",
            entry_columns!(),
            " FROM journal WHERE id = ?",
        ));
        let row = row.bind(signed(id)).fetch_optional(&self.lists).await?;
        row.map(JournalEntry::try_from).transpose()
    }
}

/// Rows to read for a page: one more tells whether the list continues.
fn one_more(at_most: usize) -> i64 {
    signed(at_most as u64 + 1)
}

fn orders(rows: Vec<OrderColumns>) -> Result<Vec<Order>, LedgerError> {
    rows.into_iter().map(Order::try_from).collect()
}

#[async_trait]
impl Lists for SqliteLedger {
    async fn scan(
        &self,
        after: OrderId,
        last: OrderId,
        at_most: usize,
    ) -> Result<Option<(OrderId, usize)>, LedgerError> {
        let end = sqlx::query_as::<_, (Uuid, i64)>(
            "SELECT id, count(*) OVER () FROM (SELECT id FROM orders WHERE id > ? AND id <= ? ORDER BY id LIMIT ?) \
             ORDER BY id DESC LIMIT 1",
        );
        let end = end
            .bind(after.as_uuid())
            .bind(last.as_uuid())
            .bind(signed(at_most as u64))
            .fetch_optional(&self.lists)
            .await?;
        end.map(|(id, count)| Ok((id.into(), unsigned::<i64>("count", count)? as usize)))
            .transpose()
    }

    async fn item_orders(
        &self,
        item: &ItemId,
        state: Option<OrderState>,
        after: OrderId,
        last: OrderId,
        at_most: usize,
    ) -> Result<Vec<Order>, LedgerError> {
        let rows = sqlx::query_as::<_, OrderColumns>(concat!(
            "SELECT ",
            order_columns!(),
            " FROM orders WHERE id > ?1 AND id <= ?2 AND item = ?3 AND (?4 IS NULL OR state = ?4) ORDER BY id LIMIT ?5"
        ));
        let rows = rows
            .bind(after.as_uuid())
            .bind(last.as_uuid())
            .bind(item.as_str())
            .bind(state.map(OrderState::as_str))
            .bind(signed(at_most as u64))
            .fetch_all(&self.lists)
            .await?;
        orders(rows)
    }
}
