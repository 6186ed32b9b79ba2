//! Purging archived items, on SQLite. The pages that are freed are used again; the file keeps its
//! size.

use async_trait::async_trait;
use domain::{ItemId, OrderId};
use jiff::Timestamp;
use uuid::Uuid;

use super::{SqliteLedger, Transaction, hex, json, listing::refund_failed_is_due};
use crate::{
    Audits, GoodAudit, LedgerError, PurgeRequest, PurgeStep, Purges,
    columns::{GoodAuditColumns, PurgeColumns},
    convert::{column, id_range, parsed, signed, unsigned},
    purge::{self, Deleted, PurgeState, Statements},
};

/// Whether the money of the order is to be returned: it found no units, its refund has failed, or a refund
/// is on its way, which may still fail.
macro_rules! money_is_due {
    () => {
        "(state = 'refund_due' OR state = 'refunded' AND EXISTS ( \
            SELECT 1 FROM payments AS owed WHERE owed.id = orders.payment AND owed.due_refund IS NOT NULL) \
          OR EXISTS (SELECT 1 FROM refunds WHERE refunds.payment = orders.payment AND refunds.state IN ('pending', 'requires_action')))"
    };
}

#[async_trait]
impl Purges for SqliteLedger {
    async fn request_purge(
        &self,
        id: &ItemId,
        archived_before: Timestamp,
        actor: &str,
    ) -> Result<PurgeRequest, LedgerError> {
        purge::request(self.write().await?, id, archived_before, actor).await
    }

    async fn items_to_purge(&self) -> Result<Vec<ItemId>, LedgerError> {
        let ids = sqlx::query_scalar::<_, String>(
            "SELECT id FROM items WHERE purge_by IS NOT NULL AND purged_at IS NULL ORDER BY id",
        );
        let ids = ids.fetch_all(&self.lists).await?;
        ids.iter().map(|id| parsed("items.id", id)).collect()
    }

    async fn purge(
        &self,
        id: &ItemId,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<PurgeStep, LedgerError> {
        purge::step(self.write().await?, id, after, at_most).await
    }
}

#[async_trait]
impl Audits for SqliteLedger {
    async fn good_audit(&self, id: &ItemId) -> Result<Option<GoodAudit>, LedgerError> {
        let row = sqlx::query_as::<_, GoodAuditColumns>(
            "SELECT at AS at_ms, revision FROM good_audits WHERE item = ?",
        );
        row.bind(id.as_str())
            .fetch_optional(&self.lists)
            .await?
            .map(GoodAudit::try_from)
            .transpose()
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
}

#[async_trait]
impl Statements for Transaction {
    async fn lock_purge(&mut self, id: &ItemId) -> Result<Option<PurgeState>, LedgerError> {
        let row = sqlx::query_as::<_, PurgeColumns>(
            "SELECT archived_at AS archived_ms, purge_by, purged_orders, purged_transfers, purged_at AS purged_ms FROM items WHERE id = ?",
        );
        row.bind(id.as_str())
            .fetch_optional(&mut **self)
            .await?
            .map(PurgeState::try_from)
            .transpose()
    }

    async fn write_purge_request(&mut self, id: &ItemId, actor: &str) -> Result<(), LedgerError> {
        sqlx::query("UPDATE items SET purge_by = ?2 WHERE id = ?1")
            .bind(id.as_str())
            .bind(actor)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn delete_orders(
        &mut self,
        id: &ItemId,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<Deleted, LedgerError> {
        let [first, last] = id_range(id.tag());
        let visited = sqlx::query_scalar::<_, Uuid>(
            "SELECT id FROM orders WHERE id >= ?2 AND id > ?3 AND id <= ?4 AND item = ?1 ORDER BY id LIMIT ?5",
        );
        let visited = visited
            .bind(id.as_str())
            .bind(after.unwrap_or(first).as_uuid())
            .bind(after.map_or(Uuid::nil(), |after| after.as_uuid()))
            .bind(last.as_uuid())
            .bind(signed(at_most as u64))
            .fetch_all(&mut **self)
            .await?;
        let ids = json(&column(&visited, |id| hex(*id)))?;
        sqlx::query(concat!(
            "UPDATE payments SET is_settled = 1 WHERE id IN (SELECT payment FROM orders WHERE id IN (SELECT unhex(value) FROM json_each(?)) AND NOT ",
            money_is_due!(),
            ")",
        ))
        .bind(&ids)
        .execute(&mut **self)
        .await?;
        sqlx::query(concat!(
            "DELETE FROM refunds WHERE payment IN (SELECT payment FROM orders WHERE id IN (SELECT unhex(value) FROM json_each(?)) AND NOT ",
            money_is_due!(),
            ")",
        ))
        .bind(&ids)
        .execute(&mut **self)
        .await?;
        let deleted = sqlx::query(concat!(
            "DELETE FROM orders WHERE id IN (SELECT unhex(value) FROM json_each(?)) AND NOT ",
            money_is_due!(),
        ));
        let deleted = deleted.bind(&ids).execute(&mut **self).await?;
        sqlx::query(
            "DELETE FROM checkout_sessions WHERE target IN (SELECT unhex(value) FROM json_each(?))",
        )
        .bind(&ids)
        .execute(&mut **self)
        .await?;
        delete_carts(self, &ids).await?;
        Ok(Deleted {
            orders: deleted.rows_affected(),
            last: visited.last().copied().map(OrderId::from),
        })
    }

    async fn orders_left(&mut self, id: &ItemId) -> Result<u64, LedgerError> {
        let left = sqlx::query_scalar::<_, i64>(concat!(
            "SELECT count(*) FROM orders WHERE id BETWEEN ?2 AND ?3 AND item = ?1 AND ",
            money_is_due!(),
        ));
        let [first, last] = id_range(id.tag());
        let left = left
            .bind(id.as_str())
            .bind(first.as_uuid())
            .bind(last.as_uuid());
        unsigned("orders", left.fetch_one(&mut **self).await?)
    }

    async fn delete_transfers(&mut self, id: &ItemId, at_most: usize) -> Result<u64, LedgerError> {
        let deleted = sqlx::query(
            "DELETE FROM transfers WHERE id IN (SELECT id FROM transfers WHERE item = ?1 ORDER BY id LIMIT ?2)",
        );
        let deleted = deleted
            .bind(id.as_str())
            .bind(signed(at_most as u64))
            .execute(&mut **self)
            .await?;
        Ok(deleted.rows_affected())
    }

    async fn count_purged(
        &mut self,
        id: &ItemId,
        orders: u64,
        transfers: u64,
        is_done: bool,
    ) -> Result<(), LedgerError> {
        let at = is_done.then(|| Timestamp::now().as_millisecond());
        sqlx::query(
            "UPDATE items SET purged_orders = purged_orders + ?2, purged_transfers = purged_transfers + ?3, purged_at = ?4 WHERE id = ?1",
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

/// Deletes the settled carts of these orders of which no order is left. The lines of the others stay:
/// they name the orders of other items.
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
        "UPDATE payments SET is_settled = 1 WHERE id IN (SELECT payment FROM carts WHERE id IN (SELECT unhex(value) FROM json_each(?)))",
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
