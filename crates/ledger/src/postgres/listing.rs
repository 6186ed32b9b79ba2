//! Lists on PostgreSQL.

use std::time::Duration;

use async_trait::async_trait;
use domain::{BuyerId, ItemId, Order, OrderId, OrderState};
use jiff::Timestamp;
use uuid::Uuid;

use super::{PostgresLedger, item_columns, order_columns, webhooks::milliseconds};
use crate::{
    JournalEntry, LedgerError, ListedItem, Listing, Page,
    columns::{JournalColumns, ListedColumns, OrderColumns},
    convert::{signed, unsigned},
    listing::{self, Lists},
};

/// Items with the units of their segments.
macro_rules! listed_items {
    ($where:literal) => {
        concat!(
            "SELECT ",
            item_columns!(),
            ", units.available, units.held, units.confirmed, units.\"returning\" FROM items CROSS JOIN LATERAL ( \
                 SELECT coalesce(sum(available), 0)::bigint AS available, coalesce(sum(held), 0)::bigint AS held, \
                        coalesce(sum(confirmed), 0)::bigint AS confirmed, coalesce(sum(\"returning\"), 0)::bigint AS \"returning\" \
                 FROM segments WHERE segments.item = items.id) AS units ",
            $where
        )
    };
}

const ITEMS: &str = listed_items!("WHERE id > $1 ORDER BY id LIMIT $2");

const SOME_ITEMS: &str = listed_items!("WHERE id = ANY($1) ORDER BY id");

const ITEM_ORDERS: &str = concat!(
    "SELECT ",
    order_columns!(),
    " FROM orders WHERE id > $1 AND id <= $2 AND item = $3 AND ($4::text IS NULL OR state = $4) ORDER BY id LIMIT $5"
);

const SCAN: &str = "SELECT id, count(*) OVER () FROM (SELECT id FROM orders WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3) AS scanned \
     ORDER BY id DESC LIMIT 1";

/// A range of one name, in the order of its index, and not a name that is equal: then the primary
/// key would have the same order, and statistics of a ledger that had few buyers would choose it. A
/// page of a buyer of one order would read all orders.
const BUYER_ORDERS: &str = concat!(
    "SELECT ",
    order_columns!(),
    " FROM orders WHERE buyer ~>=~ $1 AND buyer ~<=~ $1 AND id > $2 ORDER BY buyer USING ~<~, id LIMIT $3"
);

const REFUNDS_DUE: &str = concat!(
    "SELECT ",
    order_columns!(),
    " FROM orders WHERE state = 'refund_due' AND id > $1 ORDER BY id LIMIT $2"
);

/// Whether the entry of a failed refund tells of money that is due. While its order or cart is
/// still paid for, or was when a drop deleted it, nothing is; while that is `refund_due`, it is
/// listed itself. The limits keep PostgreSQL from hashing whole tables.
macro_rules! refund_failed_is_due {
    () => {
        "(SELECT owed.id FROM payments AS owed WHERE owed.id = journal.after ->> 'payment' AND owed.due_refund = journal.after ->> 'refund' \
            AND NOT (owed.is_settled AND owed.returned_at IS NULL) \
            AND (SELECT orders.id FROM orders WHERE orders.id = owed.order_id AND orders.payment = owed.id AND orders.state <> 'refunded' LIMIT 1) IS NULL \
            AND (SELECT carts.id FROM carts WHERE carts.id = owed.order_id AND carts.payment = owed.id AND carts.state <> 'refunded' LIMIT 1) IS NULL \
          LIMIT 1) IS NOT NULL"
    };
}
pub(super) use refund_failed_is_due;

/// The columns of an entry. That of a failed refund has what is due of its payment now, while it is
/// listed, and then what an admin has returned: other refunds of the payment may have failed or
/// succeeded since it was written.
macro_rules! entry_columns {
    () => {
        "id, (extract(epoch FROM at) * 1000)::bigint AS at_ms, item, actor, action, token, before::text, \
         CASE WHEN action = 'refund_failed' THEN jsonb_set(after, '{due}', coalesce( \
             (SELECT to_jsonb(owed.due_amount) FROM payments AS owed \
              WHERE owed.id = journal.after ->> 'payment' AND owed.due_refund = journal.after ->> 'refund' LIMIT 1), \
             (SELECT done.after -> 'due' FROM journal AS done \
              WHERE done.item = journal.item AND done.once = 'payment_refunded ' || journal.id LIMIT 1), \
             after -> 'due', 'null')) ELSE after END::text AS after"
    };
}

/// A payment that has paid something, whatever its entry names, is not due: its money is returned
/// with that.
const PAYMENTS_DUE: &str = concat!(
    "SELECT ",
    entry_columns!(),
    " \
     FROM journal WHERE action IN ('unmatched_payment', 'refund_failed') AND id > $1 \
       AND (action <> 'refund_failed' OR ",
    refund_failed_is_due!(),
    ") \
       AND (action <> 'unmatched_payment' OR ( \
             (SELECT done.id FROM journal AS done WHERE done.item = journal.item AND done.once = 'payment_refunded ' || journal.id LIMIT 1) IS NULL \
         AND (SELECT paid.id FROM payments AS paid WHERE paid.id = journal.after ->> 'payment' AND (paid.returned_at IS NOT NULL OR paid.is_settled \
                OR coalesce((SELECT orders.id FROM orders WHERE orders.id = paid.order_id AND orders.payment = paid.id LIMIT 1), \
                            (SELECT carts.id FROM carts WHERE carts.id = paid.order_id AND carts.payment = paid.id LIMIT 1)) IS NOT NULL) \
              LIMIT 1) IS NULL)) \
     ORDER BY id LIMIT $2",
);

/// Slot 0 is before the first span.
const HELD_BY_END: &str = "SELECT least(greatest(floor((extract(epoch FROM expires_at) * 1000 - $2) / $3)::bigint + 1, 0), $4) AS slot, sum(quantity)::bigint \
     FROM orders WHERE item = $1 AND state = 'held' GROUP BY slot";

const JOURNAL: &str = "SELECT id, (extract(epoch FROM at) * 1000)::bigint AS at_ms, item, actor, action, token, before::text, after::text \
     FROM journal WHERE item = $1 AND id < $2 ORDER BY id DESC LIMIT $3";

#[async_trait]
impl Listing for PostgresLedger {
    async fn list_items(
        &self,
        after: Option<&ItemId>,
        at_most: usize,
    ) -> Result<Page<ListedItem, ItemId>, LedgerError> {
        let rows = sqlx::query_as::<_, ListedColumns>(ITEMS)
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
        let rows = sqlx::query_as::<_, ListedColumns>(SOME_ITEMS)
            .bind(ids)
            .fetch_all(&self.pool)
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
        let rows = sqlx::query_as::<_, OrderColumns>(BUYER_ORDERS)
            .bind(buyer.as_str())
            .bind(after.map_or(Uuid::nil(), |after| after.as_uuid()))
            .bind(one_more(at_most))
            .fetch_all(&self.lists)
            .await?;
        Ok(Page::cut(orders(rows)?, at_most, |order| order.id))
    }

    async fn list_refunds_due(
        &self,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Page<Order, OrderId>, LedgerError> {
        let rows = sqlx::query_as::<_, OrderColumns>(REFUNDS_DUE)
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
        let rows = sqlx::query_as::<_, JournalColumns>(PAYMENTS_DUE)
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
        let rows = sqlx::query_as::<_, JournalColumns>(JOURNAL)
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
        let row = sqlx::query_as::<_, JournalColumns>(concat!(
            "SELECT ",
            entry_columns!(),
            " FROM journal WHERE id = $1",
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
impl Lists for PostgresLedger {
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
        orders(rows)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use sqlx::{AssertSqlSafe, PgPool};

    use super::{
        BUYER_ORDERS, ITEM_ORDERS, ITEMS, JOURNAL, PAYMENTS_DUE, PostgresLedger, REFUNDS_DUE, SCAN,
    };
    use crate::{Ledger, PoolSettings};

    const NIL: &str = "'00000000-0000-0000-0000-000000000000'";

    /// Orders of one item, and items whose tags are spread over all tags.
    pub(in super::super) const SALE: [&str; 3] = [
        "INSERT INTO items (id, tag, title, stock, price, currency, segments, hold_seconds, durability, state, epoch, as_created) \
         SELECT 'vase-' || n, n * 400000::bigint, 'vase', 0, 0, 'EUR', 1, 60, 'recorded', 'open', 1, '{}' FROM generate_series(1, 10000) AS n",
        "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) \
         SELECT lpad(to_hex(n * 1000), 32, '0')::uuid, 'vase-1', 0, 'buyer-' || n, 1, 'held', now() FROM generate_series(1, 20000) AS n",
        "INSERT INTO journal (at, item, actor, action, before, after) \
         SELECT now(), 'vase-1', 'admin', 'state', '{}', '{}' FROM generate_series(1, 10000)",
    ];

    pub(in super::super) async fn plan(pool: &PgPool, statement: &str, values: &str) -> String {
        let mut connection = pool.acquire().await.unwrap();
        for sql in [
            "SET plan_cache_mode = force_generic_plan".to_owned(),
            "DEALLOCATE ALL".into(),
            format!("PREPARE page AS {statement}"),
        ] {
            sqlx::raw_sql(AssertSqlSafe(sql))
                .execute(&mut *connection)
                .await
                .unwrap();
        }
        let explain = format!("EXPLAIN (COSTS OFF) EXECUTE page ({values})");
        let lines = sqlx::query_scalar::<_, String>(AssertSqlSafe(explain));
        let lines = lines.persistent(false).fetch_all(&mut *connection).await;
        connection.close().await.unwrap();
        lines.unwrap().join("\n")
    }

    /// A page must cost the same in a sale of any size, whatever the statistics say.
    #[tokio::test(flavor = "multi_thread")]
    async fn each_page_reads_its_part_of_an_index() {
        let url = testkit::postgres_database().await;
        let ledger = PostgresLedger::connect(&url, PoolSettings::patient(2))
            .await
            .unwrap();
        ledger.migrate().await.unwrap();
        let table = [
            (ITEMS, "'', 100".to_owned(), "Index Scan using items_pkey"),
            (
                ITEM_ORDERS,
                format!("{NIL}, {NIL}, 'vase', NULL, 100"),
                "Index Scan using orders_pkey",
            ),
            (SCAN, format!("{NIL}, {NIL}, 100"), "using orders_pkey"),
            (
                BUYER_ORDERS,
                format!("'ann', {NIL}, 100"),
                "Index Scan using orders_of_buyer",
            ),
            (
                REFUNDS_DUE,
                format!("{NIL}, 100"),
                "Index Scan using orders_refund_due",
            ),
            (
                PAYMENTS_DUE,
                "0, 100".into(),
                "Index Scan using journal_payments_due",
            ),
            (
                PAYMENTS_DUE,
                "0, 100".into(),
                "Index Scan using journal_once",
            ),
            (
                JOURNAL,
                "'vase', 100, 100".into(),
                // By `journal_of_item`, or by the primary key if nearly all entries are the item's.
                "Index Scan Backward using journal_",
            ),
        ];
        for step in ["empty", "full", "analyzed"] {
            match step {
                "full" => {
                    for sql in SALE {
                        sqlx::raw_sql(sql).execute(&ledger.pool).await.unwrap();
                    }
                }
                "analyzed" => {
                    sqlx::raw_sql("ANALYZE")
                        .execute(&ledger.pool)
                        .await
                        .unwrap();
                }
                _ => {}
            }
            for (statement, values, index) in &table {
                let plan = plan(&ledger.lists, statement, values).await;
                assert!(plan.contains(index), "{step}: {statement}:\n{plan}");
                assert!(!plan.contains("Bitmap"), "{step}: {statement}:\n{plan}");
                // Where rows are sorted, they are those that were found.
                let sorted = plan.find("Sort").unwrap_or(plan.len());
                let bounded = plan[sorted..].contains("Limit") || sorted == plan.len();
                assert!(bounded, "{step}: {statement}:\n{plan}");
            }
        }
    }

    /// Orders of one buyer, as of a test before a sale, and then of many.
    const FEW_BUYERS: &str = "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) \
         SELECT lpad(to_hex(n * 1000), 32, '0')::uuid, 'vase-1', 0, 'tester', 1, 'held', now() FROM generate_series(1, 100) AS n";
    const MANY_BUYERS: &str = "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) \
         SELECT lpad(to_hex(n * 1000 + 1), 32, '0')::uuid, 'vase-1', 0, 'buyer-' || n, 1, 'held', now() FROM generate_series(1, 20000) AS n";

    /// Such statistics say that nearly every order is the buyer's, so that the primary key would
    /// do.
    #[tokio::test(flavor = "multi_thread")]
    async fn statistics_of_one_buyer_do_not_make_a_page_read_the_orders_of_all() {
        let url = testkit::postgres_database().await;
        let ledger = PostgresLedger::connect(&url, PoolSettings::patient(2))
            .await
            .unwrap();
        ledger.migrate().await.unwrap();
        for sql in [
            "ALTER TABLE orders SET (autovacuum_enabled = off)",
            FEW_BUYERS,
            "ANALYZE orders",
            MANY_BUYERS,
        ] {
            sqlx::raw_sql(sql).execute(&ledger.pool).await.unwrap();
        }
        let values = format!("'buyer-7', {NIL}, 100");
        let naive = BUYER_ORDERS
            .replace("buyer ~>=~ $1 AND buyer ~<=~ $1", "buyer = $1")
            .replace("buyer USING ~<~, ", "");
        let naive = plan(&ledger.lists, &naive, &values).await;
        assert!(naive.contains("orders_pkey"), "{naive}");
        let plan = plan(&ledger.lists, BUYER_ORDERS, &values).await;
        assert!(plan.contains("Index Scan using orders_of_buyer"), "{plan}");
        assert!(!plan.contains("orders_pkey"), "{plan}");
        // The index begins at the cursor: it is a condition of the index, not a filter behind it.
        let condition = "Index Cond: ((buyer ~>=~ $1) AND (buyer ~<=~ $1) AND (id > $2))";
        assert!(plan.contains(condition), "{plan}");
    }
}
