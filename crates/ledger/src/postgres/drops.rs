//! Dropping archived items, on PostgreSQL.
//!
//! Drops use the connections of lists: their plans read the rows of a page and no others, and
//! however much is dropped, orders and recorders keep their connections.

use async_trait::async_trait;
use domain::ItemId;
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    PostgresLedger, Transaction, connections, refund_failed_is_due, webhooks::milliseconds,
};
use crate::{
    Audits, ComparedSums, DropEnd, DropRequest, DroppedRows, Drops, ExportPage, ExportedRow,
    FailedAudit, GoodAudit, LastAudits, LedgerError, SaleTable, Sums, VerifiedExport,
    columns::{DropColumns, LastAuditsColumns},
    contract::SINK_UNUSED_AFTER,
    convert::{column, id_range, parsed, signed, unsigned},
    drops::{self, DropState, EVENTS_MIN_AGE, RowsLeft, Statements},
};

/// Whether the money of the order is to be returned: it found no units, its refund has failed, or a
/// refund is on its way, which may still fail. The limit keeps PostgreSQL from hashing all
/// payments.
macro_rules! money_is_due {
    () => {
        "(state = 'refund_due' OR state = 'refunded' AND ( \
            SELECT owed.id FROM payments AS owed WHERE owed.id = orders.payment AND owed.due_refund IS NOT NULL LIMIT 1) IS NOT NULL \
          OR (SELECT refunds.id FROM refunds WHERE refunds.payment = orders.payment AND refunds.state IN ('pending', 'requires_action') LIMIT 1) IS NOT NULL)"
    };
}

/// An order with what goes with it. A cart is written with each of its orders, because it goes with
/// the last one.
macro_rules! order_document {
    () => {
        "jsonb_build_object('order', to_jsonb(orders), \
         'sessions', (SELECT jsonb_agg(to_jsonb(checkout_sessions) ORDER BY place) FROM checkout_sessions WHERE target = orders.id), \
         'refunds', (SELECT jsonb_agg(to_jsonb(refunds) ORDER BY refunds.id) FROM refunds WHERE refunds.payment = orders.payment), \
         'cart', (SELECT jsonb_build_object('cart', to_jsonb(carts), \
             'lines', (SELECT jsonb_agg(to_jsonb(lines) ORDER BY lines.place) FROM cart_lines AS lines WHERE lines.cart = carts.id), \
             'sessions', (SELECT jsonb_agg(to_jsonb(sessions) ORDER BY sessions.place) FROM checkout_sessions AS sessions WHERE sessions.target = carts.id)) \
             FROM cart_lines JOIN carts ON carts.id = cart_lines.cart WHERE cart_lines.order_id = orders.id LIMIT 1))::text"
    };
}

/// Entries that stay: those of money, those of the end of the item, and those of admins, except
/// about the holds of single orders. What is noted once stays, so that it is noted once.
macro_rules! entry_goes {
    () => {
        "once IS NULL AND (actor IN ('reconciler', 'payment', 'publisher') OR action IN ('cancel', 'extend')) \
         AND action NOT IN ('archive', 'drop_request', 'drop_export', 'drop', 'unmatched_payment', 'refund_failed', 'payment_refunded')"
    };
}

/// `$1`: the item. `$2`: milliseconds since a sink was served after which it is not in use. `$3`:
/// milliseconds for which an event is new.
macro_rules! event_goes {
    () => {
        "events.item = $1 AND events.at < now() - $3 * interval '1 millisecond' \
         AND NOT EXISTS (SELECT FROM webhooks WHERE disabled_at IS NULL AND (webhooks.xid, webhooks.seq) < (events.xid, events.seq)) \
         AND NOT EXISTS (SELECT FROM sinks WHERE served_at > now() - $2 * interval '1 millisecond' AND (sinks.xid, sinks.seq) < (events.xid, events.seq))"
    };
}

const ORDERS_PAGE: &str = concat!(
    "SELECT id, ",
    order_document!(),
    " FROM orders WHERE id >= $2 AND id > $3 AND id <= $4 AND item = $1 AND NOT ",
    money_is_due!(),
    " ORDER BY id LIMIT $5",
);

/// Other items' events are read as well, without their documents: there is no index by item, which
/// every order would have to pay for.
const EVENTS_PAGE: &str = concat!(
    "WITH events AS (SELECT * FROM events WHERE (xid, seq) > ($4::text::xid8, $5) AND xid < pg_snapshot_xmin(pg_current_snapshot()) \
                     ORDER BY xid, seq LIMIT $6) \
     SELECT xid::text::bigint, seq, CASE WHEN ",
    event_goes!(),
    " THEN to_jsonb(events)::text END FROM events ORDER BY xid, seq",
);

#[async_trait]
impl Drops for PostgresLedger {
    async fn request_drop(
        &self,
        id: &ItemId,
        archived_before: Timestamp,
        actor: &str,
    ) -> Result<DropRequest, LedgerError> {
        drops::request(
            connections::begin(&self.lists).await?,
            id,
            archived_before,
            actor,
        )
        .await
    }

    async fn items_to_drop(&self) -> Result<Vec<ItemId>, LedgerError> {
        let ids = sqlx::query_scalar::<_, String>(
            "SELECT id FROM items WHERE drop_by IS NOT NULL AND dropped_at IS NULL ORDER BY id",
        );
        let ids = ids.fetch_all(&self.lists).await?;
        ids.iter().map(|id| parsed("items.id", id)).collect()
    }

    async fn items_archived_before(
        &self,
        time: Timestamp,
        at_most: usize,
    ) -> Result<Vec<ItemId>, LedgerError> {
        let ids = sqlx::query_scalar::<_, String>(
            "SELECT id FROM items WHERE archived_at <= to_timestamp($1::double precision / 1000) AND drop_by IS NULL \
             ORDER BY archived_at LIMIT $2",
        );
        let ids = ids
            .bind(time.as_millisecond())
            .bind(signed(at_most as u64))
            .fetch_all(&self.lists)
            .await?;
        ids.iter().map(|id| parsed("items.id", id)).collect()
    }

    async fn orders_owed(&self, id: &ItemId) -> Result<u64, LedgerError> {
        let [first, last] = id_range(id.tag());
        let owed = sqlx::query_scalar::<_, i64>(concat!(
            "SELECT count(*) FROM orders WHERE id BETWEEN $2 AND $3 AND item = $1 AND ",
            money_is_due!(),
        ));
        let owed = owed
            .bind(id.as_str())
            .bind(first.as_uuid())
            .bind(last.as_uuid());
        unsigned("orders", owed.fetch_one(&self.lists).await?)
    }

    async fn export_page(
        &self,
        id: &ItemId,
        table: SaleTable,
        after: Option<u128>,
        at_most: usize,
    ) -> Result<ExportPage, LedgerError> {
        let rows = match table {
            SaleTable::Orders => self.orders_page(id, after, at_most).await?,
            SaleTable::Transfers => self.transfers_page(id, after, at_most).await?,
            SaleTable::Journal => self.journal_page(id, after, at_most).await?,
            SaleTable::Events => self.events_page(id, after, at_most).await?,
        };
        Ok(ExportPage::of(rows, at_most))
    }

    async fn note_export(&self, id: &ItemId, export: &VerifiedExport) -> Result<(), LedgerError> {
        drops::note_export(connections::begin(&self.lists).await?, id, export).await
    }

    async fn drop_rows(
        &self,
        id: &ItemId,
        table: SaleTable,
        rows: &[ExportedRow],
    ) -> Result<Option<DroppedRows>, LedgerError> {
        drops::delete(connections::begin(&self.lists).await?, id, table, rows).await
    }

    async fn finish_drop(&self, id: &ItemId) -> Result<DropEnd, LedgerError> {
        drops::finish(connections::begin(&self.lists).await?, id).await
    }
}

/// A key with its document. `None`: the row does not go.
type Row = (u128, Option<String>);

impl PostgresLedger {
    async fn orders_page(
        &self,
        id: &ItemId,
        after: Option<u128>,
        at_most: usize,
    ) -> Result<Vec<Row>, LedgerError> {
        let [first, last] = id_range(id.tag());
        let after = after.map(Uuid::from_u128);
        let rows = sqlx::query_as::<_, (Uuid, String)>(ORDERS_PAGE)
            .bind(id.as_str())
            .bind(after.unwrap_or(first.as_uuid()))
            .bind(after.unwrap_or(Uuid::nil()))
            .bind(last.as_uuid())
            .bind(signed(at_most as u64))
            .fetch_all(&self.lists)
            .await?;
        Ok(column(rows, |(id, row)| (id.as_u128(), Some(row))))
    }

    async fn transfers_page(
        &self,
        id: &ItemId,
        after: Option<u128>,
        at_most: usize,
    ) -> Result<Vec<Row>, LedgerError> {
        let rows = sqlx::query_as::<_, (Uuid, String)>(
            "SELECT id, to_jsonb(transfers)::text FROM transfers WHERE item = $1 AND id > $2 ORDER BY id LIMIT $3",
        );
        let rows = rows
            .bind(id.as_str())
            .bind(after.map_or(Uuid::nil(), Uuid::from_u128))
            .bind(signed(at_most as u64))
            .fetch_all(&self.lists)
            .await?;
        Ok(column(rows, |(id, row)| (id.as_u128(), Some(row))))
    }

    async fn journal_page(
        &self,
        id: &ItemId,
        after: Option<u128>,
        at_most: usize,
    ) -> Result<Vec<Row>, LedgerError> {
        let rows = sqlx::query_as::<_, (i64, String)>(concat!(
            "SELECT id, to_jsonb(journal)::text FROM journal WHERE item = $1 AND id > $2 AND ",
            entry_goes!(),
            " ORDER BY id LIMIT $3",
        ));
        let rows = rows
            .bind(id.as_str())
            .bind(after.map_or(0, drops::number))
            .bind(signed(at_most as u64))
            .fetch_all(&self.lists)
            .await?;
        rows.into_iter()
            .map(|(id, row)| Ok((u128::from(unsigned::<u64>("journal.id", id)?), Some(row))))
            .collect()
    }

    async fn events_page(
        &self,
        id: &ItemId,
        after: Option<u128>,
        at_most: usize,
    ) -> Result<Vec<Row>, LedgerError> {
        let (xid, seq) = drops::position(after.unwrap_or(0));
        let rows = sqlx::query_as::<_, (i64, i64, Option<String>)>(EVENTS_PAGE)
            .bind(id.as_str())
            .bind(milliseconds(SINK_UNUSED_AFTER))
            .bind(milliseconds(EVENTS_MIN_AGE))
            .bind(xid.to_string())
            .bind(seq)
            .bind(signed(at_most as u64))
            .fetch_all(&self.lists)
            .await?;
        rows.into_iter()
            .map(|(xid, seq, row)| Ok((drops::key(xid, seq)?, row)))
            .collect()
    }
}

#[async_trait]
impl Audits for PostgresLedger {
    async fn last_audits(&self, id: &ItemId) -> Result<LastAudits, LedgerError> {
        let row = sqlx::query_as::<_, LastAuditsColumns>(
            "SELECT (extract(epoch FROM good.at) * 1000)::bigint AS good_ms, good.revision, \
             (extract(epoch FROM compared.at) * 1000)::bigint AS compared_ms, compared.revision AS compared_revision, \
             (extract(epoch FROM failed.at) * 1000)::bigint AS failed_ms, failed.miscounted, failed.oversold \
             FROM (SELECT $1::text AS item) AS asked LEFT JOIN good_audits AS good ON good.item = asked.item \
             LEFT JOIN failed_audits AS failed ON failed.item = asked.item \
             LEFT JOIN order_sums AS compared ON compared.item = asked.item",
        );
        row.bind(id.as_str())
            .fetch_one(&self.reads)
            .await?
            .try_into()
    }

    async fn refunds_due_by_item(&self) -> Result<Vec<(ItemId, u64)>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64)>(
            "SELECT item, count(*) FROM orders WHERE state = 'refund_due' GROUP BY item",
        );
        let rows = rows.fetch_all(&self.audits).await?;
        rows.iter()
            .map(|(item, orders)| Ok((parsed("orders.item", item)?, unsigned("orders", *orders)?)))
            .collect()
    }

    async fn failed_refunds_by_item(&self) -> Result<Vec<(ItemId, u64)>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64)>(concat!(
            "SELECT item, count(*) FROM journal WHERE action IN ('unmatched_payment', 'refund_failed') AND action = 'refund_failed' AND ",
            refund_failed_is_due!(),
            " GROUP BY item",
        ));
        let rows = rows.fetch_all(&self.lists).await?;
        rows.iter()
            .map(|(item, refunds)| {
                Ok((
                    parsed("journal.item", item)?,
                    unsigned("refunds", *refunds)?,
                ))
            })
            .collect()
    }

    async fn note_good_audit(&self, id: &ItemId, audit: GoodAudit) -> Result<(), LedgerError> {
        let noted = sqlx::query(
            "INSERT INTO good_audits (item, at, revision) VALUES ($1, to_timestamp($2::double precision / 1000), $3) \
             ON CONFLICT (item) DO UPDATE SET at = excluded.at, revision = excluded.revision WHERE good_audits.at <= excluded.at",
        );
        noted
            .bind(id.as_str())
            .bind(audit.at.as_millisecond())
            .bind(audit.revision.cast_signed())
            .execute(&mut *connections::lend(&self.audits).await?)
            .await?;
        Ok(())
    }

    async fn note_failed_audit(&self, id: &ItemId, audit: FailedAudit) -> Result<(), LedgerError> {
        let noted = sqlx::query(
            "INSERT INTO failed_audits (item, at, miscounted, oversold) VALUES ($1, to_timestamp($2::double precision / 1000), $3, $4) \
             ON CONFLICT (item) DO UPDATE SET at = excluded.at, miscounted = excluded.miscounted, oversold = excluded.oversold \
             WHERE failed_audits.at <= excluded.at",
        );
        noted
            .bind(id.as_str())
            .bind(audit.at.as_millisecond())
            .bind(signed(audit.miscounted))
            .bind(signed(audit.oversold))
            .execute(&self.audits)
            .await?;
        Ok(())
    }

    async fn last_sums(&self, id: &ItemId) -> Result<Option<Sums>, LedgerError> {
        let sums =
            sqlx::query_scalar::<_, String>("SELECT sums::text FROM order_sums WHERE item = $1");
        let sums = sums.bind(id.as_str()).fetch_optional(&self.audits).await?;
        Ok(sums.as_deref().and_then(Sums::from_json))
    }

    async fn note_sums(&self, id: &ItemId, compared: &ComparedSums) -> Result<(), LedgerError> {
        let noted = sqlx::query(
            "INSERT INTO order_sums (item, at, revision, sums) \
             VALUES ($1, to_timestamp($2::double precision / 1000), $3, $4::text::jsonb) \
             ON CONFLICT (item) DO UPDATE SET at = excluded.at, revision = excluded.revision, sums = excluded.sums \
             WHERE order_sums.at <= excluded.at",
        );
        noted
            .bind(id.as_str())
            .bind(compared.audit.at.as_millisecond())
            .bind(compared.audit.revision.cast_signed())
            .bind(compared.sums.to_json())
            .execute(&self.audits)
            .await?;
        Ok(())
    }
}

#[async_trait]
impl Statements for Transaction {
    /// Not `FOR UPDATE`: a journal entry locks the key of its item, after its transaction has
    /// locked what a drop deletes.
    async fn lock_drop(&mut self, id: &ItemId) -> Result<Option<DropState>, LedgerError> {
        let row = sqlx::query_as::<_, DropColumns>(
            "SELECT (extract(epoch FROM archived_at) * 1000)::bigint AS archived_ms, drop_by, dropped_orders, dropped_transfers, \
             (extract(epoch FROM dropped_at) * 1000)::bigint AS dropped_ms FROM items WHERE id = $1 FOR NO KEY UPDATE",
        );
        row.bind(id.as_str())
            .fetch_optional(&mut **self)
            .await?
            .map(DropState::try_from)
            .transpose()
    }

    async fn write_drop_request(&mut self, id: &ItemId, actor: &str) -> Result<(), LedgerError> {
        sqlx::query("UPDATE items SET drop_by = $2 WHERE id = $1")
            .bind(id.as_str())
            .bind(actor)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn lock_rows(
        &mut self,
        id: &ItemId,
        table: SaleTable,
        keys: &[u128],
    ) -> Result<Vec<ExportedRow>, LedgerError> {
        match table {
            SaleTable::Orders => lock_orders(self, id, &uuids(keys)).await,
            SaleTable::Transfers => lock_transfers(self, id, &uuids(keys)).await,
            SaleTable::Journal => {
                lock_journal(self, id, &column(keys, |key| drops::number(*key))).await
            }
            SaleTable::Events => lock_events(self, id, keys).await,
        }
    }

    async fn delete_rows(&mut self, table: SaleTable, keys: &[u128]) -> Result<u64, LedgerError> {
        let deleted = match table {
            SaleTable::Orders => return delete_orders(self, &uuids(keys)).await,
            SaleTable::Transfers => {
                sqlx::query("DELETE FROM transfers WHERE id = ANY($1)").bind(uuids(keys))
            }
            SaleTable::Journal => sqlx::query("DELETE FROM journal WHERE id = ANY($1)")
                .bind(column(keys, |key| drops::number(*key))),
            SaleTable::Events => {
                let (xids, seqs) = positions(keys);
                sqlx::query(
                    "DELETE FROM events USING UNNEST($1::text[], $2::bigint[]) AS gone (xid, seq) \
                     WHERE events.xid = gone.xid::xid8 AND events.seq = gone.seq",
                )
                .bind(xids)
                .bind(seqs)
            }
        };
        Ok(deleted.execute(&mut **self).await?.rows_affected())
    }

    async fn rows_left(&mut self, id: &ItemId) -> Result<RowsLeft, LedgerError> {
        let left = sqlx::query_as::<_, (i64, i64)>(concat!(
            "SELECT count(*) FILTER (WHERE ",
            money_is_due!(),
            "), count(*) FILTER (WHERE NOT ",
            money_is_due!(),
            ") + (SELECT count(*) FROM transfers WHERE item = $1) + (SELECT count(*) FROM journal WHERE item = $1 AND ",
            entry_goes!(),
            ") FROM orders WHERE id BETWEEN $2 AND $3 AND item = $1",
        ));
        let [first, last] = id_range(id.tag());
        let (owed, others) = left
            .bind(id.as_str())
            .bind(first.as_uuid())
            .bind(last.as_uuid())
            .fetch_one(&mut **self)
            .await?;
        Ok(RowsLeft {
            owed: unsigned("orders", owed)?,
            others: unsigned("rows", others)?,
        })
    }

    async fn count_dropped(
        &mut self,
        id: &ItemId,
        orders: u64,
        transfers: u64,
        is_done: bool,
    ) -> Result<(), LedgerError> {
        sqlx::query(
            "UPDATE items SET dropped_orders = dropped_orders + $2, dropped_transfers = dropped_transfers + $3, \
             dropped_at = CASE WHEN $4 THEN now() END WHERE id = $1",
        )
        .bind(id.as_str())
        .bind(signed(orders))
        .bind(signed(transfers))
        .bind(is_done)
        .execute(&mut **self)
        .await?;
        Ok(())
    }
}

fn uuids(keys: &[u128]) -> Vec<Uuid> {
    column(keys, |key| Uuid::from_u128(*key))
}

fn positions(keys: &[u128]) -> (Vec<String>, Vec<i64>) {
    let positions = column(keys, |key| drops::position(*key));
    positions
        .into_iter()
        .map(|(xid, seq)| (xid.to_string(), seq))
        .unzip()
}

/// The documents are read by a statement of their own: it sees what was committed while the locks
/// were waited for. Carts are locked first, then payments, then orders, as by the steps of all
/// three: a report that a refund has failed comes before this, and is seen, or finds the order
/// gone.
async fn lock_orders(
    transaction: &mut Transaction,
    item: &ItemId,
    ids: &[Uuid],
) -> Result<Vec<ExportedRow>, LedgerError> {
    for lock in [
        "SELECT id FROM carts WHERE id = ANY(ARRAY(SELECT cart FROM cart_lines WHERE order_id = ANY($1))) ORDER BY id FOR UPDATE",
        "SELECT id FROM payments WHERE id = ANY(ARRAY(SELECT payment FROM orders WHERE id = ANY($1) AND payment IS NOT NULL)) ORDER BY id COLLATE \"C\" FOR UPDATE",
        "SELECT id FROM orders WHERE id = ANY($1) ORDER BY id FOR UPDATE",
    ] {
        sqlx::query(lock)
            .bind(ids)
            .execute(&mut **transaction)
            .await?;
    }
    let rows = sqlx::query_as::<_, (Uuid, String)>(concat!(
        "SELECT id, ",
        order_document!(),
        " FROM orders WHERE id = ANY($1) AND item = $2 AND NOT ",
        money_is_due!(),
    ));
    let rows = rows
        .bind(ids)
        .bind(item.as_str())
        .fetch_all(&mut **transaction)
        .await?;
    Ok(column(rows, |(id, document)| ExportedRow {
        key: id.as_u128(),
        document,
    }))
}

async fn lock_transfers(
    transaction: &mut Transaction,
    item: &ItemId,
    ids: &[Uuid],
) -> Result<Vec<ExportedRow>, LedgerError> {
    let rows = sqlx::query_as::<_, (Uuid, String)>(
        "SELECT id, to_jsonb(transfers)::text FROM transfers WHERE id = ANY($1) AND item = $2 FOR UPDATE",
    );
    let rows = rows
        .bind(ids)
        .bind(item.as_str())
        .fetch_all(&mut **transaction)
        .await?;
    Ok(column(rows, |(id, document)| ExportedRow {
        key: id.as_u128(),
        document,
    }))
}

async fn lock_journal(
    transaction: &mut Transaction,
    item: &ItemId,
    ids: &[i64],
) -> Result<Vec<ExportedRow>, LedgerError> {
    let rows = sqlx::query_as::<_, (i64, String)>(concat!(
        "SELECT id, to_jsonb(journal)::text FROM journal WHERE id = ANY($1) AND item = $2 AND ",
        entry_goes!(),
        " FOR UPDATE",
    ));
    let rows = rows
        .bind(ids)
        .bind(item.as_str())
        .fetch_all(&mut **transaction)
        .await?;
    rows.into_iter()
        .map(|(id, document)| {
            let key = u128::from(unsigned::<u64>("journal.id", id)?);
            Ok(ExportedRow { key, document })
        })
        .collect()
}

async fn lock_events(
    transaction: &mut Transaction,
    item: &ItemId,
    keys: &[u128],
) -> Result<Vec<ExportedRow>, LedgerError> {
    let (xids, seqs) = positions(keys);
    let rows = sqlx::query_as::<_, (i64, i64, String)>(concat!(
        "SELECT events.xid::text::bigint, events.seq, to_jsonb(events)::text \
         FROM UNNEST($4::text[], $5::bigint[]) AS wanted (xid, seq) \
         JOIN events ON events.xid = wanted.xid::xid8 AND events.seq = wanted.seq WHERE ",
        event_goes!(),
        " FOR UPDATE OF events",
    ));
    let rows = rows
        .bind(item.as_str())
        .bind(milliseconds(SINK_UNUSED_AFTER))
        .bind(milliseconds(EVENTS_MIN_AGE))
        .bind(xids)
        .bind(seqs)
        .fetch_all(&mut **transaction)
        .await?;
    rows.into_iter()
        .map(|(xid, seq, document)| {
            let key = drops::key(xid, seq)?;
            Ok(ExportedRow { key, document })
        })
        .collect()
}

/// The payment of a cart is that of each of its lines: it is settled with the cart. Its refunds
/// stay with it, as those of an order: one of them may fail later, and is known then.
async fn delete_orders(transaction: &mut Transaction, ids: &[Uuid]) -> Result<u64, LedgerError> {
    let settled = sqlx::query(concat!(
        "UPDATE payments SET is_settled = true, dropped_order = order_id, \
             dropped_item = (SELECT orders.item FROM orders WHERE orders.id = payments.order_id) \
         WHERE id = ANY(ARRAY(SELECT payment FROM orders WHERE id = ANY($1) AND payment IS NOT NULL \
             AND NOT EXISTS (SELECT FROM cart_lines WHERE order_id = orders.id) AND NOT ",
        money_is_due!(),
        "))",
    ));
    settled.bind(ids).execute(&mut **transaction).await?;
    let deleted = sqlx::query(concat!(
        "DELETE FROM orders WHERE id = ANY($1) AND NOT ",
        money_is_due!(),
    ));
    let deleted = deleted.bind(ids).execute(&mut **transaction).await?;
    sqlx::query("DELETE FROM checkout_sessions WHERE target = ANY($1)")
        .bind(ids)
        .execute(&mut **transaction)
        .await?;
    delete_carts(transaction, ids).await?;
    Ok(deleted.rows_affected())
}

/// Deletes the settled carts of these orders of which no order is left. The lines of the others
/// stay: they name the orders of other items.
async fn delete_carts(transaction: &mut Transaction, orders: &[Uuid]) -> Result<(), LedgerError> {
    let carts = sqlx::query_scalar::<_, Uuid>(
        "SELECT DISTINCT cart FROM cart_lines JOIN carts ON carts.id = cart \
         WHERE order_id = ANY($1) AND due_at IS NULL AND NOT EXISTS ( \
             SELECT FROM cart_lines AS others JOIN orders ON orders.id = others.order_id WHERE others.cart = cart_lines.cart)",
    );
    let carts = carts.bind(orders).fetch_all(&mut **transaction).await?;
    if carts.is_empty() {
        return Ok(());
    }
    for statement in [
        "UPDATE payments SET is_settled = true, (dropped_order, dropped_item) = ( \
             SELECT order_id, item FROM cart_lines WHERE cart = payments.order_id ORDER BY place LIMIT 1) \
         WHERE id = ANY(ARRAY(SELECT payment FROM carts WHERE id = ANY($1) AND payment IS NOT NULL))",
        "DELETE FROM cart_lines WHERE cart = ANY($1)",
        "DELETE FROM carts WHERE id = ANY($1)",
        "DELETE FROM checkout_sessions WHERE target = ANY($1)",
    ] {
        sqlx::query(statement)
            .bind(&carts)
            .execute(&mut **transaction)
            .await?;
    }
    Ok(())
}
