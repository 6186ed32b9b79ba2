//! Dropping archived items, on SQLite. The pages that are freed are used again; the file keeps its
//! size.

use async_trait::async_trait;
use domain::ItemId;
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, SqliteConnection};
use uuid::Uuid;

use super::{SqliteLedger, Transaction, hex, json, refund_failed_is_due};
use crate::{
    Audits, ComparedSums, DropEnd, DropRequest, DroppedRows, Drops, ExportPage, ExportedRow,
    FailedAudit, GoodAudit, LastAudits, LedgerError, SaleTable, Sums, VerifiedExport,
    columns::{DropColumns, LastAuditsColumns},
    contract::SINK_UNUSED_AFTER,
    convert::{column, id_range, parsed, signed, unsigned},
    drops::{self, DropState, EVENTS_MIN_AGE, RowsLeft, Statements},
};

/// Whether the money of the order is to be returned: it found no units, its refund has failed, or a
/// refund is on its way, which may still fail.
macro_rules! money_is_due {
    () => {
        "(state = 'refund_due' OR state = 'refunded' AND EXISTS ( \
            SELECT 1 FROM payments AS owed WHERE owed.id = orders.payment AND owed.due_refund IS NOT NULL) \
          OR EXISTS (SELECT 1 FROM refunds WHERE refunds.payment = orders.payment AND refunds.state IN ('pending', 'requires_action')))"
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

/// `?1`: the item. `?2`: the time at which a sink that is in use was served last, at the earliest.
/// `?3`: the time before which an event is no longer new.
const EVENT_GOES: &str = "events.item = ?1 AND events.at < ?3 \
     AND NOT EXISTS (SELECT 1 FROM webhooks WHERE disabled_at IS NULL AND webhooks.seq < events.seq) \
     AND NOT EXISTS (SELECT 1 FROM sinks WHERE served_at > ?2 AND sinks.seq < events.seq)";

#[async_trait]
impl Drops for SqliteLedger {
    async fn request_drop(
        &self,
        id: &ItemId,
        archived_before: Timestamp,
        actor: &str,
    ) -> Result<DropRequest, LedgerError> {
        drops::request(self.write().await?, id, archived_before, actor).await
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
            "SELECT id FROM items WHERE archived_at <= ? AND drop_by IS NULL ORDER BY archived_at LIMIT ?",
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
            "SELECT count(*) FROM orders WHERE id BETWEEN ?2 AND ?3 AND item = ?1 AND ",
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
        let mut connection = self.lists.acquire().await?;
        let rows = match table {
            SaleTable::Orders => orders_page(&mut connection, id, after, at_most).await?,
            SaleTable::Transfers => transfers_page(&mut connection, id, after, at_most).await?,
            SaleTable::Journal => journal_page(&mut connection, id, after, at_most).await?,
            SaleTable::Events => events_page(&mut connection, id, after, at_most).await?,
        };
        Ok(ExportPage::of(rows, at_most))
    }

    async fn note_export(&self, id: &ItemId, export: &VerifiedExport) -> Result<(), LedgerError> {
        drops::note_export(self.write().await?, id, export).await
    }

    async fn drop_rows(
        &self,
        id: &ItemId,
        table: SaleTable,
        rows: &[ExportedRow],
    ) -> Result<Option<DroppedRows>, LedgerError> {
        drops::delete(self.write().await?, id, table, rows).await
    }

    async fn finish_drop(&self, id: &ItemId) -> Result<DropEnd, LedgerError> {
        drops::finish(self.write().await?, id).await
    }
}

/// A key with its document. `None`: the row does not go.
type Row = (u128, Option<String>);

/// An expression that has every column of the table, with bytes as hexadecimal digits. It follows
/// the schema, so no migration can leave a column out.
async fn document(connection: &mut SqliteConnection, table: &str) -> Result<String, LedgerError> {
    let columns = sqlx::query_as::<_, (String, String)>(
        "SELECT name, type FROM pragma_table_info(?) ORDER BY cid",
    );
    let columns = columns.bind(table).fetch_all(connection).await?;
    let values = columns.iter().map(|(name, kind)| match &**kind {
        "BLOB" => format!("'{name}', hex({table}.\"{name}\")"),
        _ => format!("'{name}', {table}.\"{name}\""),
    });
    let values: Vec<_> = values.collect();
    Ok(format!("json_object({})", values.join(", ")))
}

/// An order with what goes with it. A cart is written with each of its orders, because it goes with
/// the last one.
async fn order_document(connection: &mut SqliteConnection) -> Result<String, LedgerError> {
    let order = document(connection, "orders").await?;
    let session = document(connection, "checkout_sessions").await?;
    let refund = document(connection, "refunds").await?;
    let cart = document(connection, "carts").await?;
    let line = document(connection, "cart_lines").await?;
    let sessions = |target: &str| {
        format!(
            "(SELECT json_group_array(json(one)) FROM (SELECT {session} AS one FROM checkout_sessions WHERE target = {target} ORDER BY place))"
        )
    };
    let (of_order, of_cart) = (sessions("orders.id"), sessions("carts.id"));
    Ok(format!(
        "json_object('order', json({order}), 'sessions', json({of_order}), \
         'refunds', json((SELECT json_group_array(json(one)) FROM (SELECT {refund} AS one FROM refunds WHERE refunds.payment = orders.payment ORDER BY refunds.id))), \
         'cart', json((SELECT json_object('cart', json({cart}), \
             'lines', json((SELECT json_group_array(json(one)) FROM (SELECT {line} AS one FROM cart_lines WHERE cart_lines.cart = carts.id ORDER BY place))), \
             'sessions', json({of_cart})) \
             FROM cart_lines AS own JOIN carts ON carts.id = own.cart WHERE own.order_id = orders.id)))"
    ))
}

async fn orders_page(
    connection: &mut SqliteConnection,
    id: &ItemId,
    after: Option<u128>,
    at_most: usize,
) -> Result<Vec<Row>, LedgerError> {
    let [first, last] = id_range(id.tag());
    let after = after.map(Uuid::from_u128);
    let columns = order_document(connection).await?;
    let sql = format!(
        "SELECT id, {columns} FROM orders WHERE id >= ?2 AND id > ?3 AND id <= ?4 AND item = ?1 AND NOT {} ORDER BY id LIMIT ?5",
        money_is_due!(),
    );
    let rows = sqlx::query_as::<_, (Uuid, String)>(AssertSqlSafe(sql))
        .bind(id.as_str())
        .bind(after.unwrap_or(first.as_uuid()))
        .bind(after.unwrap_or(Uuid::nil()))
        .bind(last.as_uuid())
        .bind(signed(at_most as u64))
        .fetch_all(connection)
        .await?;
    Ok(column(rows, |(id, row)| (id.as_u128(), Some(row))))
}

async fn transfers_page(
    connection: &mut SqliteConnection,
    id: &ItemId,
    after: Option<u128>,
    at_most: usize,
) -> Result<Vec<Row>, LedgerError> {
    let columns = document(connection, "transfers").await?;
    let sql = format!(
        "SELECT id, {columns} FROM transfers WHERE item = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
    );
    let rows = sqlx::query_as::<_, (Uuid, String)>(AssertSqlSafe(sql))
        .bind(id.as_str())
        .bind(after.map_or(Uuid::nil(), Uuid::from_u128))
        .bind(signed(at_most as u64))
        .fetch_all(connection)
        .await?;
    Ok(column(rows, |(id, row)| (id.as_u128(), Some(row))))
}

async fn journal_page(
    connection: &mut SqliteConnection,
    id: &ItemId,
    after: Option<u128>,
    at_most: usize,
) -> Result<Vec<Row>, LedgerError> {
    let columns = document(connection, "journal").await?;
    let sql = format!(
        "SELECT id, {columns} FROM journal WHERE item = ?1 AND id > ?2 AND {} ORDER BY id LIMIT ?3",
        entry_goes!(),
    );
    let rows = sqlx::query_as::<_, (i64, String)>(AssertSqlSafe(sql))
        .bind(id.as_str())
        .bind(after.map_or(0, drops::number))
        .bind(signed(at_most as u64))
        .fetch_all(connection)
        .await?;
    rows.into_iter()
        .map(|(id, row)| Ok((u128::from(unsigned::<u64>("journal.id", id)?), Some(row))))
        .collect()
}

/// Other items' events are read as well, without their documents: there is no index by item, which
/// every order would have to pay for.
async fn events_page(
    connection: &mut SqliteConnection,
    id: &ItemId,
    after: Option<u128>,
    at_most: usize,
) -> Result<Vec<Row>, LedgerError> {
    let columns = document(connection, "events").await?;
    let sql = format!(
        "SELECT seq, CASE WHEN {EVENT_GOES} THEN {columns} END FROM events WHERE seq > ?4 ORDER BY seq LIMIT ?5",
    );
    let [served, old] = event_times();
    let rows = sqlx::query_as::<_, (i64, Option<String>)>(AssertSqlSafe(sql))
        .bind(id.as_str())
        .bind(served)
        .bind(old)
        .bind(after.map_or(0, drops::number))
        .bind(signed(at_most as u64))
        .fetch_all(connection)
        .await?;
    rows.into_iter()
        .map(|(seq, row)| Ok((drops::key(0, seq)?, row)))
        .collect()
}

/// The values of `?2` and `?3` in [`EVENT_GOES`].
fn event_times() -> [i64; 2] {
    let now = Timestamp::now().as_millisecond();
    [SINK_UNUSED_AFTER, EVENTS_MIN_AGE]
        .map(|age| now - i64::try_from(age.as_millis()).unwrap_or(i64::MAX))
}

#[async_trait]
impl Audits for SqliteLedger {
    async fn last_audits(&self, id: &ItemId) -> Result<LastAudits, LedgerError> {
        let row = sqlx::query_as::<_, LastAuditsColumns>(
            "SELECT good.at AS good_ms, good.revision, compared.at AS compared_ms, \
             compared.revision AS compared_revision, failed.at AS failed_ms, failed.miscounted, failed.oversold \
             FROM (SELECT ? AS item) AS asked LEFT JOIN good_audits AS good ON good.item = asked.item \
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
        let rows = rows.fetch_all(&self.lists).await?;
        rows.iter()
            .map(|(item, orders)| Ok((parsed("orders.item", item)?, unsigned("orders", *orders)?)))
            .collect()
    }

    async fn failed_refunds_by_item(&self) -> Result<Vec<(ItemId, u64)>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64)>(concat!(
            "SELECT item, count(*) FROM journal INDEXED BY journal_payments_due \
             WHERE action IN ('unmatched_payment', 'refund_failed') AND action = 'refund_failed' AND ",
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
            "INSERT INTO good_audits (item, at, revision) VALUES (?, ?, ?) \
             ON CONFLICT (item) DO UPDATE SET at = excluded.at, revision = excluded.revision WHERE good_audits.at <= excluded.at",
        );
        noted
            .bind(id.as_str())
            .bind(audit.at.as_millisecond())
            .bind(audit.revision.cast_signed())
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    async fn note_failed_audit(&self, id: &ItemId, audit: FailedAudit) -> Result<(), LedgerError> {
        let noted = sqlx::query(
            "INSERT INTO failed_audits (item, at, miscounted, oversold) VALUES (?, ?, ?, ?) \
             ON CONFLICT (item) DO UPDATE SET at = excluded.at, miscounted = excluded.miscounted, oversold = excluded.oversold \
             WHERE failed_audits.at <= excluded.at",
        );
        noted
            .bind(id.as_str())
            .bind(audit.at.as_millisecond())
            .bind(signed(audit.miscounted))
            .bind(signed(audit.oversold))
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    async fn last_sums(&self, id: &ItemId) -> Result<Option<Sums>, LedgerError> {
        let sums = sqlx::query_scalar::<_, String>("SELECT sums FROM order_sums WHERE item = ?");
        let sums = sums.bind(id.as_str()).fetch_optional(&self.audits).await?;
        Ok(sums.as_deref().and_then(Sums::from_json))
    }

    async fn note_sums(&self, id: &ItemId, compared: &ComparedSums) -> Result<(), LedgerError> {
        let noted = sqlx::query(
            "INSERT INTO order_sums (item, at, revision, sums) VALUES (?, ?, ?, ?) \
             ON CONFLICT (item) DO UPDATE SET at = excluded.at, revision = excluded.revision, sums = excluded.sums \
             WHERE order_sums.at <= excluded.at",
        );
        noted
            .bind(id.as_str())
            .bind(compared.audit.at.as_millisecond())
            .bind(compared.audit.revision.cast_signed())
            .bind(compared.sums.to_json())
            .execute(&self.writer)
            .await?;
        Ok(())
    }
}

#[async_trait]
impl Statements for Transaction {
    async fn lock_drop(&mut self, id: &ItemId) -> Result<Option<DropState>, LedgerError> {
        let row = sqlx::query_as::<_, DropColumns>(
            "SELECT archived_at AS archived_ms, drop_by, dropped_orders, dropped_transfers, dropped_at AS dropped_ms FROM items WHERE id = ?",
        );
        row.bind(id.as_str())
            .fetch_optional(&mut **self)
            .await?
            .map(DropState::try_from)
            .transpose()
    }

    async fn write_drop_request(&mut self, id: &ItemId, actor: &str) -> Result<(), LedgerError> {
        sqlx::query("UPDATE items SET drop_by = ?2 WHERE id = ?1")
            .bind(id.as_str())
            .bind(actor)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    /// The transaction is the only writer, so all rows are locked.
    async fn lock_rows(
        &mut self,
        id: &ItemId,
        table: SaleTable,
        keys: &[u128],
    ) -> Result<Vec<ExportedRow>, LedgerError> {
        match table {
            SaleTable::Orders => read_orders(self, id, keys).await,
            SaleTable::Transfers => read_transfers(self, id, keys).await,
            SaleTable::Journal => read_journal(self, id, keys).await,
            SaleTable::Events => read_events(self, id, keys).await,
        }
    }

    async fn delete_rows(&mut self, table: SaleTable, keys: &[u128]) -> Result<u64, LedgerError> {
        let deleted = match table {
            SaleTable::Orders => return delete_orders(self, &ids(keys)?).await,
            SaleTable::Transfers => sqlx::query(
                "DELETE FROM transfers WHERE id IN (SELECT unhex(value) FROM json_each(?))",
            )
            .bind(ids(keys)?),
            SaleTable::Journal => {
                sqlx::query("DELETE FROM journal WHERE id IN (SELECT value FROM json_each(?))")
                    .bind(numbers(keys)?)
            }
            SaleTable::Events => {
                sqlx::query("DELETE FROM events WHERE seq IN (SELECT value FROM json_each(?))")
                    .bind(numbers(keys)?)
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
            ") + (SELECT count(*) FROM transfers WHERE item = ?1) + (SELECT count(*) FROM journal WHERE item = ?1 AND ",
            entry_goes!(),
            ") FROM orders WHERE id BETWEEN ?2 AND ?3 AND item = ?1",
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
        let at = is_done.then(|| Timestamp::now().as_millisecond());
        sqlx::query(
            "UPDATE items SET dropped_orders = dropped_orders + ?2, dropped_transfers = dropped_transfers + ?3, dropped_at = ?4 WHERE id = ?1",
        )
        .bind(id.as_str())
        .bind(signed(orders))
        .bind(signed(transfers))
        .bind(at)
        .execute(&mut **self)
        .await?;
        Ok(())
    }
}

fn ids(keys: &[u128]) -> Result<String, LedgerError> {
    json(&column(keys, |key| hex(Uuid::from_u128(*key))))
}

fn numbers(keys: &[u128]) -> Result<String, LedgerError> {
    json(&column(keys, |key| drops::number(*key)))
}

async fn read_orders(
    transaction: &mut Transaction,
    item: &ItemId,
    keys: &[u128],
) -> Result<Vec<ExportedRow>, LedgerError> {
    let columns = order_document(transaction).await?;
    let sql = format!(
        "SELECT id, {columns} FROM orders WHERE id IN (SELECT unhex(value) FROM json_each(?1)) AND item = ?2 AND NOT {}",
        money_is_due!(),
    );
    let rows = sqlx::query_as::<_, (Uuid, String)>(AssertSqlSafe(sql))
        .bind(ids(keys)?)
        .bind(item.as_str())
        .fetch_all(&mut **transaction)
        .await?;
    Ok(column(rows, |(id, document)| ExportedRow {
        key: id.as_u128(),
        document,
    }))
}

async fn read_transfers(
    transaction: &mut Transaction,
    item: &ItemId,
    keys: &[u128],
) -> Result<Vec<ExportedRow>, LedgerError> {
    let columns = document(transaction, "transfers").await?;
    let sql = format!(
        "SELECT id, {columns} FROM transfers WHERE id IN (SELECT unhex(value) FROM json_each(?1)) AND item = ?2",
    );
    let rows = sqlx::query_as::<_, (Uuid, String)>(AssertSqlSafe(sql))
        .bind(ids(keys)?)
        .bind(item.as_str())
        .fetch_all(&mut **transaction)
        .await?;
    Ok(column(rows, |(id, document)| ExportedRow {
        key: id.as_u128(),
        document,
    }))
}

async fn read_journal(
    transaction: &mut Transaction,
    item: &ItemId,
    keys: &[u128],
) -> Result<Vec<ExportedRow>, LedgerError> {
    let columns = document(transaction, "journal").await?;
    let sql = format!(
        "SELECT id, {columns} FROM journal WHERE id IN (SELECT value FROM json_each(?1)) AND item = ?2 AND {}",
        entry_goes!(),
    );
    let rows = sqlx::query_as::<_, (i64, String)>(AssertSqlSafe(sql))
        .bind(numbers(keys)?)
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

async fn read_events(
    transaction: &mut Transaction,
    item: &ItemId,
    keys: &[u128],
) -> Result<Vec<ExportedRow>, LedgerError> {
    let columns = document(transaction, "events").await?;
    let sql = format!(
        "SELECT seq, {columns} FROM events WHERE seq IN (SELECT value FROM json_each(?4)) AND {EVENT_GOES}",
    );
    let [served, old] = event_times();
    let rows = sqlx::query_as::<_, (i64, String)>(AssertSqlSafe(sql))
        .bind(item.as_str())
        .bind(served)
        .bind(old)
        .bind(numbers(keys)?)
        .fetch_all(&mut **transaction)
        .await?;
    rows.into_iter()
        .map(|(seq, document)| {
            let key = drops::key(0, seq)?;
            Ok(ExportedRow { key, document })
        })
        .collect()
}

/// The payment of a cart is that of each of its lines, and its refunds too: both go with the cart.
async fn delete_orders(transaction: &mut Transaction, ids: &str) -> Result<u64, LedgerError> {
    let settled = sqlx::query(concat!(
        "UPDATE payments SET is_settled = 1, dropped_order = order_id, \
             dropped_item = (SELECT orders.item FROM orders WHERE orders.id = payments.order_id) \
         WHERE id IN (SELECT payment FROM orders WHERE id IN (SELECT unhex(value) FROM json_each(?)) \
             AND NOT EXISTS (SELECT 1 FROM cart_lines WHERE order_id = orders.id) AND NOT ",
        money_is_due!(),
        ")",
    ));
    settled.bind(ids).execute(&mut **transaction).await?;
    let deleted = sqlx::query(concat!(
        "DELETE FROM orders WHERE id IN (SELECT unhex(value) FROM json_each(?)) AND NOT ",
        money_is_due!(),
    ));
    let deleted = deleted.bind(ids).execute(&mut **transaction).await?;
    sqlx::query(
        "DELETE FROM checkout_sessions WHERE target IN (SELECT unhex(value) FROM json_each(?))",
    )
    .bind(ids)
    .execute(&mut **transaction)
    .await?;
    delete_carts(transaction, ids).await?;
    Ok(deleted.rows_affected())
}

/// Deletes the settled carts of these orders of which no order is left. The lines of the others
/// stay: they name the orders of other items.
async fn delete_carts(transaction: &mut Transaction, orders: &str) -> Result<(), LedgerError> {
    let carts = sqlx::query_scalar::<_, Uuid>(
        "SELECT DISTINCT cart FROM cart_lines JOIN carts ON carts.id = cart \
         WHERE order_id IN (SELECT unhex(value) FROM json_each(?)) AND due_at IS NULL AND NOT EXISTS ( \
             SELECT 1 FROM cart_lines AS others JOIN orders ON orders.id = others.order_id WHERE others.cart = cart_lines.cart)",
    );
    let carts = carts.bind(orders).fetch_all(&mut **transaction).await?;
    if carts.is_empty() {
        return Ok(());
    }
    let carts = json(&column(&carts, |id| hex(*id)))?;
    for statement in [
        "UPDATE payments SET is_settled = 1, (dropped_order, dropped_item) = ( \
             SELECT order_id, item FROM cart_lines WHERE cart = payments.order_id ORDER BY place LIMIT 1) \
         WHERE id IN (SELECT payment FROM carts WHERE id IN (SELECT unhex(value) FROM json_each(?)))",
        "DELETE FROM cart_lines WHERE cart IN (SELECT unhex(value) FROM json_each(?))",
        "DELETE FROM carts WHERE id IN (SELECT unhex(value) FROM json_each(?))",
        "DELETE FROM checkout_sessions WHERE target IN (SELECT unhex(value) FROM json_each(?))",
    ] {
        sqlx::query(statement)
            .bind(&carts)
            .execute(&mut **transaction)
            .await?;
    }
    Ok(())
}
