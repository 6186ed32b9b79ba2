//! What became of the money of payments: its statements, for either database.

use std::sync::Arc;

use async_trait::async_trait;
use domain::{ItemId, Order, PaymentId};
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    Store, Transaction, begin, notes, payments,
    sql::{journal, refunds as sql},
    step_reads, with_now,
};
use crate::{
    JournalEntry, LedgerError, NewJournalEntry, NotedRefund, Payer, PaymentReturn, RefundReport,
    Refunds, ReturnedPayment,
    columns::{JournalColumns, KnownRefundColumns, PayerColumns, PaymentColumns},
    convert::{milliseconds, signed},
    refunds::{self, Due, KnownRefund, PaymentRow, Statements},
};

#[async_trait]
impl Refunds for Store {
    async fn note_return(&self, returned: &PaymentReturn) -> Result<ReturnedPayment, LedgerError> {
        refunds::note_return(begin(self).await?, returned).await
    }

    async fn note_refund(&self, report: &RefundReport) -> Result<NotedRefund, LedgerError> {
        refunds::note_refund(begin(self).await?, report).await
    }

    async fn note_refund_done(&self, entry: u64, actor: &str) -> Result<bool, LedgerError> {
        refunds::note_refund_done(begin(self).await?, entry, actor).await
    }

    async fn return_order(
        &self,
        order: &Order,
        actor: &Arc<str>,
    ) -> Result<Option<Order>, LedgerError> {
        refunds::return_order(begin(self).await?, order, actor).await
    }

    async fn note_order_done(
        &self,
        order: &Order,
        actor: &Arc<str>,
    ) -> Result<Option<Order>, LedgerError> {
        refunds::note_order_done(begin(self).await?, order, actor).await
    }

    async fn is_order_done(&self, order: &Order) -> Result<bool, LedgerError> {
        let noted = sqlx::query_scalar::<_, bool>(journal::IS_NOTED)
            .bind(order.item.as_str())
            .bind(refunds::order_done_name(order.id));
        Ok(noted.fetch_one(step_reads(self)).await?)
    }

    async fn is_returned(&self, payment: &PaymentId) -> Result<bool, LedgerError> {
        let returned = sqlx::query_scalar::<_, bool>(sql::IS_RETURNED).bind(payment.as_str());
        Ok(returned.fetch_one(step_reads(self)).await?)
    }
}

#[async_trait]
impl Statements for Transaction {
    async fn lock_payment(
        &mut self,
        payment: &PaymentId,
    ) -> Result<Option<PaymentRow>, LedgerError> {
        payments::lock(self, payment).await?;
        let row = sqlx::query_as::<_, PaymentColumns>(sql::LOCK_PAYMENT);
        row.bind(payment.as_str())
            .fetch_optional(&mut **self)
            .await?
            .map(PaymentRow::try_from)
            .transpose()
    }

    async fn mark_returned(
        &mut self,
        payment: &PaymentId,
        payer: Option<Uuid>,
        at: Timestamp,
    ) -> Result<Option<Uuid>, LedgerError> {
        let bound = sqlx::query_scalar::<_, Uuid>(sql::MARK_RETURNED)
            .bind(payment.as_str())
            .bind(payer.unwrap_or_default())
            .bind(at.as_millisecond());
        let bound = bound.fetch_one(&mut **self).await?;
        Ok(Some(bound).filter(|payer| !payer.is_nil()))
    }

    async fn mark_return_unclaimed(
        &mut self,
        payment: &PaymentId,
        before: Timestamp,
    ) -> Result<(), LedgerError> {
        let marked = sqlx::query(sql::MARK_RETURN_UNCLAIMED).bind(payment.as_str());
        with_now(marked).execute(&mut **self).await?;
        payments::forget_unclaimed(self, before).await
    }

    async fn write_due(
        &mut self,
        payment: &PaymentId,
        due: Option<&Due>,
    ) -> Result<(), LedgerError> {
        sqlx::query(sql::WRITE_DUE)
            .bind(payment.as_str())
            .bind(due.map(|due| &*due.refund))
            .bind(due.map(|due| signed(due.amount)))
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn unmatched(
        &mut self,
        payment: &PaymentId,
    ) -> Result<Option<JournalEntry>, LedgerError> {
        let row = sqlx::query_as::<_, JournalColumns>(journal::UNMATCHED);
        let row = row.bind(payment.as_str()).fetch_optional(&mut **self);
        row.await?.map(JournalEntry::try_from).transpose()
    }

    async fn payer(&mut self, id: Uuid, payment: &PaymentId) -> Result<Option<Payer>, LedgerError> {
        sqlx::query_as::<_, PayerColumns>(sql::PAYER)
            .bind(id)
            .bind(payment.as_str())
            .fetch_optional(&mut **self)
            .await?
            .map(Payer::try_from)
            .transpose()
    }

    async fn refunds(&mut self, payment: &PaymentId) -> Result<Vec<KnownRefund>, LedgerError> {
        let rows = sqlx::query_as::<_, KnownRefundColumns>(sql::REFUNDS);
        let rows = rows.bind(payment.as_str()).fetch_all(&mut **self).await?;
        rows.into_iter().map(KnownRefund::try_from).collect()
    }

    async fn write_refund(
        &mut self,
        payment: &PaymentId,
        refund: &KnownRefund,
    ) -> Result<(), LedgerError> {
        sqlx::query(sql::WRITE_REFUND)
            .bind(&refund.id)
            .bind(payment.as_str())
            .bind(refund.state.as_str())
            .bind(signed(refund.amount))
            .bind(refund.created_at.as_millisecond())
            .bind(milliseconds(refund.failed_at))
            .bind(refund.is_done)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn mark_unclaimed(&mut self, refund: &str, before: Timestamp) -> Result<(), LedgerError> {
        let marked = sqlx::query(sql::MARK_UNCLAIMED).bind(refund);
        with_now(marked).execute(&mut **self).await?;
        sqlx::query(sql::FORGET_UNCLAIMED)
            .bind(before.as_millisecond())
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn claim(&mut self, payment: &PaymentId) -> Result<(), LedgerError> {
        for statement in [sql::CLAIM_REFUNDS, sql::CLAIM_RETURN] {
            sqlx::query(statement)
                .bind(payment.as_str())
                .execute(&mut **self)
                .await?;
        }
        Ok(())
    }

    async fn note_once(
        &mut self,
        entry: &NewJournalEntry,
        once: &str,
    ) -> Result<bool, LedgerError> {
        notes::add_once(self, entry, once).await
    }

    async fn is_noted(&mut self, item: &ItemId, once: &str) -> Result<bool, LedgerError> {
        let noted = sqlx::query_scalar::<_, bool>(journal::IS_NOTED);
        let noted = noted.bind(item.as_str()).bind(once);
        Ok(noted.fetch_one(&mut **self).await?)
    }

    async fn journal_entry(&mut self, id: u64) -> Result<Option<JournalEntry>, LedgerError> {
        let row = sqlx::query_as::<_, JournalColumns>(journal::BY_ID);
        let row = row.bind(signed(id)).fetch_optional(&mut **self).await?;
        row.map(JournalEntry::try_from).transpose()
    }
}
