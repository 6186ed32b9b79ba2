//! The end of an item: its statements, for either database.

use async_trait::async_trait;
use domain::{BuyerId, CartId, Item, ItemId};
use jiff::Timestamp;

use super::{
    Store, Transaction, begin, begin_long, lend,
    sql::{archive as sql, items},
    step_reads,
};
use crate::{
    Archival, Archives, Changed, Erased, FinalAudit, LedgerError, SegmentRow,
    archive::{self, Statements},
    columns::{FinalAuditColumns, SegmentColumns},
    convert::{parsed, signed, unsigned},
    erasure,
    error::check_fence,
};

#[async_trait]
impl Archives for Store {
    async fn request_archive(
        &self,
        id: &ItemId,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError> {
        archive::request(begin(self).await?, id, expected, actor).await
    }

    async fn archive(&self, archival: &Archival) -> Result<bool, LedgerError> {
        archive::archive(begin(self).await?, archival).await
    }

    async fn note_keys_removed(&self, id: &ItemId, token: u64) -> Result<(), LedgerError> {
        let noted = sqlx::query(sql::NOTE_KEYS_REMOVED);
        let noted = noted
            .bind(id.as_str())
            .bind(signed(token))
            .bind(Timestamp::now().as_millisecond())
            .execute(&mut *lend(self).await?)
            .await?;
        if noted.rows_affected() == 1 {
            return Ok(());
        }
        let fence = sqlx::query_scalar::<_, i64>(items::FENCE);
        let fence = fence.bind(id.as_str());
        let fence = fence.fetch_one(&mut *lend(self).await?).await?;
        check_fence(token, unsigned("fence", fence)?)
    }

    async fn final_audit(&self, id: &ItemId) -> Result<Option<FinalAudit>, LedgerError> {
        let row = sqlx::query_as::<_, FinalAuditColumns>(sql::FINAL_AUDIT);
        row.bind(id.as_str())
            .fetch_optional(step_reads(self))
            .await?
            .map(FinalAudit::try_from)
            .transpose()
    }

    async fn erase_buyer(&self, buyer: &BuyerId, actor: &str) -> Result<Erased, LedgerError> {
        // A buyer can have very many orders.
        erasure::erase(begin_long(self).await?, buyer, actor).await
    }
}

#[async_trait]
impl Statements for Transaction {
    async fn lock_rows_of(&mut self, item: &ItemId) -> Result<Vec<SegmentRow>, LedgerError> {
        let rows = sqlx::query_as::<_, SegmentColumns>(sql::LOCK_ROWS);
        rows.bind(item.as_str())
            .fetch_all(&mut **self)
            .await?
            .into_iter()
            .map(SegmentRow::try_from)
            .collect()
    }

    async fn has_open_transfers(&mut self, item: &ItemId) -> Result<bool, LedgerError> {
        let open = sqlx::query_scalar::<_, bool>(sql::HAS_OPEN_TRANSFERS);
        Ok(open.bind(item.as_str()).fetch_one(&mut **self).await?)
    }

    async fn write_request(&mut self, item: &ItemId, actor: &str) -> Result<(), LedgerError> {
        sqlx::query(sql::WRITE_REQUEST)
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
        sqlx::query(sql::ARCHIVE_ITEM)
            .bind(id)
            .bind(at)
            .bind(signed(archived.epoch))
            .bind(signed(archived.version))
            .execute(&mut **self)
            .await?;
        sqlx::query(sql::ARCHIVE_SEGMENTS)
            .bind(id)
            .execute(&mut **self)
            .await?;
        sqlx::query(sql::INSERT_AUDIT)
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
        let counts = sqlx::query_as::<_, (i64, i64)>(sql::ORDERS_OF);
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
        sqlx::query(sql::FORGET_ERASURE_KEY)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn replace_buyer(
        &mut self,
        buyer: &BuyerId,
        name: &str,
    ) -> Result<Vec<ItemId>, LedgerError> {
        let items = sqlx::query_scalar::<_, String>(sql::REPLACE_BUYER);
        let items = items
            .bind(buyer.as_str())
            .bind(name)
            .fetch_all(&mut **self)
            .await?;
        let carts = sqlx::query(sql::REPLACE_BUYER_OF_CARTS);
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
