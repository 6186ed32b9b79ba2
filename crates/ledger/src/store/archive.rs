//! The end of an item: its statements, for either database.

use async_trait::async_trait;
use domain::{BuyerId, CartId, Item, ItemId};
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    Store, Transaction, begin, id_list, lend,
    sql::{archive as sql, items},
    step_reads,
};
use crate::{
    Archival, Archives, Changed, Erased, FinalAudit, LedgerError, SegmentRow,
    archive::{self, Statements},
    columns::{FinalAuditColumns, SegmentColumns},
    convert::{parsed, signed, unsigned},
    erasure::{self, Found, Replaced},
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
        let found = found(self, buyer).await?;
        erasure::erase(&|| Box::pin(begin(self)), found, buyer, actor).await
    }
}

/// What the buyer has. It reads all orders of the buyer, which can be very many, and no other order
/// waits for it.
async fn found(store: &Store, buyer: &BuyerId) -> Result<Found, LedgerError> {
    let counts = sqlx::query_as::<_, (i64, i64)>(sql::ORDERS_OF);
    let [first, last] = CartId::range_of(buyer);
    let (held, kept) = counts
        .bind(buyer.as_str())
        .bind(first.as_uuid())
        .bind(last.as_uuid())
        .fetch_one(&store.audits)
        .await?;
    Ok(Found {
        held: unsigned("orders", held)?,
        kept: unsigned("orders", kept)?,
    })
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
    async fn forget_erasure_key(&mut self) -> Result<(), LedgerError> {
        sqlx::query(sql::FORGET_ERASURE_KEY)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn replace_buyer_of_page(
        &mut self,
        buyer: &BuyerId,
        name: &str,
        after: Uuid,
    ) -> Result<Replaced, LedgerError> {
        let page = sqlx::query_as::<_, (Uuid, bool)>(sql::BUYER_PAGE);
        let page = page
            .bind(buyer.as_str())
            .bind(after)
            .bind(signed(erasure::PAGE as u64))
            .fetch_all(&mut **self)
            .await?;
        let is_archived = |(id, is_archived): &(Uuid, bool)| is_archived.then_some(*id);
        let items = sqlx::query_scalar::<_, String>(sql::REPLACE_BUYER);
        let items = items
            .bind(buyer.as_str())
            .bind(name)
            .bind(id_list(page.iter().filter_map(is_archived))?)
            .fetch_all(&mut **self)
            .await?;
        let items = items.iter().map(|item| parsed("orders.item", item));
        Ok(Replaced {
            items: items.collect::<Result<_, _>>()?,
            last: (page.len() == erasure::PAGE)
                .then(|| page.last().map(|(id, _)| *id))
                .flatten(),
        })
    }

    async fn replace_buyer_of_carts(
        &mut self,
        buyer: &BuyerId,
        name: &str,
        after: Uuid,
    ) -> Result<Option<Uuid>, LedgerError> {
        let [first, last] = CartId::range_of(buyer).map(|id| id.as_uuid());
        // The first one of the range belongs to it.
        let first = first.max(Uuid::from_u128(after.as_u128().saturating_add(1)));
        let end = sqlx::query_scalar::<_, Uuid>(sql::END_OF_CART_PAGE);
        let end = end
            .bind(first)
            .bind(last)
            .bind(signed(erasure::PAGE as u64 - 1))
            .fetch_optional(&mut **self)
            .await?;
        sqlx::query(sql::REPLACE_BUYER_OF_CARTS)
            .bind(buyer.as_str())
            .bind(name)
            .bind(first)
            .bind(end.unwrap_or(last))
            .execute(&mut **self)
            .await?;
        Ok(end)
    }
}
