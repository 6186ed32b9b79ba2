//! The end of an item, on SQLite.

use async_trait::async_trait;
use domain::{BuyerId, CartId, Item, ItemId};
use jiff::Timestamp;

use super::{SqliteLedger, Transaction, segment_columns};
use crate::{
    Archival, Archives, Changed, Erased, FinalAudit, LedgerError, SegmentRow,
    archive::{self, Statements},
    columns::{FinalAuditColumns, SegmentColumns},
    convert::{parsed, signed, unsigned},
    erasure,
    error::check_fence,
};

/// The parameters are the buyer, and the range of the ids of the buyer's carts. Both statements
/// find the orders by `orders_of_buyer`, whatever an `ANALYZE` of an operator has found, and look
/// each order's item up.
pub(super) const ORDERS_OF: &str = "SELECT count(*) FILTER (WHERE state = 'held') + (SELECT count(*) FROM carts WHERE id >= ?2 AND id <= ?3 AND buyer = ?1 AND state = 'placing'), \
            count(*) FILTER (WHERE (SELECT archived_at FROM items WHERE items.id = orders.item) IS NULL) \
            + (SELECT count(*) FROM carts WHERE id >= ?2 AND id <= ?3 AND buyer = ?1 AND state = 'failed' AND due_at IS NOT NULL AND EXISTS ( \
                   SELECT 1 FROM cart_lines JOIN items ON items.id = cart_lines.item WHERE cart = carts.id AND archived_at IS NULL)) \
     FROM orders INDEXED BY orders_of_buyer WHERE buyer = ?1";

pub(super) const REPLACE_BUYER: &str = "UPDATE orders INDEXED BY orders_of_buyer SET buyer = ?2 WHERE buyer = ?1 AND (SELECT archived_at FROM items WHERE items.id = orders.item) IS NOT NULL \
     RETURNING item";

#[async_trait]
impl Archives for SqliteLedger {
    async fn request_archive(
        &self,
        id: &ItemId,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        archive::request(self.write().await?, id, expected, actor).await
    }

    async fn archive(&self, archival: &Archival) -> Result<bool, LedgerError> {
        archive::archive(self.write().await?, archival).await
    }

    async fn note_keys_removed(&self, id: &ItemId, token: u64) -> Result<(), LedgerError> {
        let noted = sqlx::query(
            "UPDATE items SET keys_removed_at = coalesce(keys_removed_at, ?3) \
             WHERE id = ?1 AND fence = ?2 AND archived_at IS NOT NULL",
        );
        let noted = noted
            .bind(id.as_str())
            .bind(signed(token))
            .bind(Timestamp::now().as_millisecond())
            .execute(&self.writer)
            .await?;
        if noted.rows_affected() == 1 {
            return Ok(());
        }
        let fence = sqlx::query_scalar::<_, i64>("SELECT fence FROM items WHERE id = ?1");
        let fence = fence.bind(id.as_str()).fetch_one(&self.writer).await?;
        check_fence(token, unsigned("fence", fence)?)
    }

    async fn final_audit(&self, id: &ItemId) -> Result<Option<FinalAudit>, LedgerError> {
        let row = sqlx::query_as::<_, FinalAuditColumns>(
            "SELECT at AS at_ms, actor, token, report, \
             (SELECT dropped_at FROM items WHERE items.id = final_audits.item) AS dropped_ms FROM final_audits WHERE item = ?1",
        );
        row.bind(id.as_str())
            .fetch_optional(&self.readers)
            .await?
            .map(FinalAudit::try_from)
            .transpose()
    }

    async fn erase_buyer(&self, buyer: &BuyerId, actor: &str) -> Result<Erased, LedgerError> {
        erasure::erase(self.write().await?, buyer, actor).await
    }
}

#[async_trait]
impl Statements for Transaction {
    /// The transaction already holds the write lock, which covers all rows.
    async fn lock_rows_of(&mut self, item: &ItemId) -> Result<Vec<SegmentRow>, LedgerError> {
        let rows = sqlx::query_as::<_, SegmentColumns>(concat!(
            "SELECT ",
            segment_columns!(),
            " FROM segments WHERE item = ?1 ORDER BY segment"
        ));
        rows.bind(item.as_str())
            .fetch_all(&mut **self)
            .await?
            .into_iter()
            .map(SegmentRow::try_from)
            .collect()
    }

    async fn has_open_transfers(&mut self, item: &ItemId) -> Result<bool, LedgerError> {
        let open = sqlx::query_scalar::<_, bool>(
            "SELECT EXISTS (SELECT 1 FROM transfers WHERE item = ?1 AND state <> 'done')",
        );
        Ok(open.bind(item.as_str()).fetch_one(&mut **self).await?)
    }

    async fn write_request(&mut self, item: &ItemId, actor: &str) -> Result<(), LedgerError> {
        sqlx::query("UPDATE items SET archive_by = ?2 WHERE id = ?1 AND archive_by IS NULL")
            .bind(item.as_str())
            .bind(actor)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn write_archive(
        &mut self,
        archived: &Item,
        audit: &FinalAudit,
    ) -> Result<(), LedgerError> {
        let (id, at) = (archived.id.as_str(), audit.at.as_millisecond());
        sqlx::query("UPDATE items SET archived_at = ?2, epoch = ?3, version = ?4 WHERE id = ?1")
            .bind(id)
            .bind(at)
            .bind(signed(archived.epoch))
            .bind(signed(archived.version))
            .execute(&mut **self)
            .await?;
        sqlx::query("UPDATE segments SET archived = 1, version = version + 1 WHERE item = ?1")
            .bind(id)
            .execute(&mut **self)
            .await?;
        sqlx::query(
            "INSERT INTO final_audits (item, at, actor, token, report) VALUES (?1, ?2, ?3, ?4, ?5)",
        )
        .bind(id)
        .bind(at)
        .bind(&audit.actor)
        .bind(signed(audit.token))
        .bind(audit.report.to_string())
        .execute(&mut **self)
        .await?;
        Ok(())
    }
}

#[async_trait]
impl erasure::Statements for Transaction {
    async fn orders_of(&mut self, buyer: &BuyerId) -> Result<(u64, u64), LedgerError> {
        let counts = sqlx::query_as::<_, (i64, i64)>(ORDERS_OF);
        let [first, last] = CartId::range_of(buyer);
        let (held, kept) = counts
            .bind(buyer.as_str())
            .bind(first.as_uuid())
            .bind(last.as_uuid())
            .fetch_one(&mut **self)
            .await?;
        Ok((unsigned("orders", held)?, unsigned("orders", kept)?))
    }

    async fn forget_erasure_key(&mut self) -> Result<(), LedgerError> {
        sqlx::query("DELETE FROM erasure_keys")
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn replace_buyer(
        &mut self,
        buyer: &BuyerId,
        name: &str,
    ) -> Result<Vec<ItemId>, LedgerError> {
        let items = sqlx::query_scalar::<_, String>(REPLACE_BUYER);
        let items = items
            .bind(buyer.as_str())
            .bind(name)
            .fetch_all(&mut **self)
            .await?;
        let carts = sqlx::query(
            "UPDATE carts SET buyer = ?2 WHERE id >= ?3 AND id <= ?4 AND buyer = ?1 AND ((state = 'failed' AND due_at IS NULL) OR NOT EXISTS ( \
                 SELECT 1 FROM cart_lines JOIN items ON items.id = cart_lines.item WHERE cart = carts.id AND archived_at IS NULL))",
        );
        let [first, last] = CartId::range_of(buyer);
        carts
            .bind(buyer.as_str())
            .bind(name)
            .bind(first.as_uuid())
            .bind(last.as_uuid())
            .execute(&mut **self)
            .await?;
        items
            .iter()
            .map(|item| parsed("orders.item", item))
            .collect()
    }
}
