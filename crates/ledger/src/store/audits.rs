//! What is remembered of audits: the statements, for either database.

use async_trait::async_trait;
use domain::ItemId;

use super::{Store, audit_pools as pools, sql::audits as sql};
use crate::{
    Audits, ComparedSums, FailedAudit, GoodAudit, LastAudits, LedgerError, Sums,
    columns::LastAuditsColumns,
    convert::{parsed, signed, unsigned},
};

#[async_trait]
impl Audits for Store {
    async fn last_audits(&self, id: &ItemId) -> Result<LastAudits, LedgerError> {
        let row = sqlx::query_as::<_, LastAuditsColumns>(sql::LAST);
        row.bind(id.as_str())
            .fetch_one(&self.reads)
            .await?
            .try_into()
    }

    async fn refunds_due_by_item(&self) -> Result<Vec<(ItemId, u64)>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64)>(sql::REFUNDS_DUE);
        let rows = rows.fetch_all(pools::counts(self)).await?;
        rows.iter()
            .map(|(item, orders)| Ok((parsed("orders.item", item)?, unsigned("orders", *orders)?)))
            .collect()
    }

    async fn failed_refunds_by_item(&self) -> Result<Vec<(ItemId, u64)>, LedgerError> {
        let rows = sqlx::query_as::<_, (String, i64)>(sql::FAILED_REFUNDS);
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
        sqlx::query(sql::NOTE_GOOD)
            .bind(id.as_str())
            .bind(audit.at.as_millisecond())
            .bind(audit.revision.cast_signed())
            .execute(&mut *pools::lend(self).await?)
            .await?;
        Ok(())
    }

    async fn note_failed_audit(&self, id: &ItemId, audit: FailedAudit) -> Result<(), LedgerError> {
        sqlx::query(sql::NOTE_FAILED)
            .bind(id.as_str())
            .bind(audit.at.as_millisecond())
            .bind(signed(audit.miscounted))
            .bind(signed(audit.oversold))
            .execute(&mut *pools::lend(self).await?)
            .await?;
        Ok(())
    }

    async fn last_sums(&self, id: &ItemId) -> Result<Option<Sums>, LedgerError> {
        let sums = sqlx::query_scalar::<_, String>(sql::SUMS);
        let sums = sums.bind(id.as_str()).fetch_optional(&self.audits).await?;
        Ok(sums.as_deref().and_then(Sums::from_json))
    }

    async fn note_sums(&self, id: &ItemId, compared: &ComparedSums) -> Result<(), LedgerError> {
        sqlx::query(sql::NOTE_SUMS)
            .bind(id.as_str())
            .bind(compared.audit.at.as_millisecond())
            .bind(compared.audit.revision.cast_signed())
            .bind(compared.sums.to_json())
            .execute(&mut *pools::lend(self).await?)
            .await?;
        Ok(())
    }
}
