//! What became of the money of payments, on PostgreSQL.

use std::sync::Arc;

use async_trait::async_trait;
use domain::{ItemId, Order, PaymentId};
use jiff::Timestamp;
use uuid::Uuid;

use super::{PostgresLedger, Transaction, connections, items};
use crate::{
    JournalEntry, LedgerError, NewJournalEntry, NotedRefund, Payer, PaymentReturn, RefundReport,
    Refunds, ReturnedPayment,
    columns::{JournalColumns, KnownRefundColumns, PayerColumns, PaymentColumns},
    convert::{milliseconds, signed},
    refunds::{self, Due, KnownRefund, PaymentRow, Statements},
};

#[async_trait]
impl Refunds for PostgresLedger {
    async fn note_return(&self, returned: &PaymentReturn) -> Result<ReturnedPayment, LedgerError> {
        refunds::note_return(connections::begin(&self.pool).await?, returned).await
    }

    async fn note_refund(&self, report: &RefundReport) -> Result<NotedRefund, LedgerError> {
        refunds::note_refund(connections::begin(&self.pool).await?, report).await
    }

    async fn note_refund_done(&self, entry: u64, actor: &str) -> Result<bool, LedgerError> {
        refunds::note_refund_done(connections::begin(&self.pool).await?, entry, actor).await
    }

    async fn return_order(
        &self,
        order: &Order,
        actor: &Arc<str>,
    ) -> Result<Option<Order>, LedgerError> {
        refunds::return_order(connections::begin(&self.pool).await?, order, actor).await
    }

    async fn note_order_done(
        &self,
        order: &Order,
        actor: &Arc<str>,
    ) -> Result<Option<Order>, LedgerError> {
        refunds::note_order_done(connections::begin(&self.pool).await?, order, actor).await
    }

    async fn is_order_done(&self, order: &Order) -> Result<bool, LedgerError> {
        let noted = sqlx::query_scalar::<_, bool>(
            "SELECT EXISTS (SELECT FROM journal WHERE item = $1 AND once = $2)",
        );
        let noted = noted
            .bind(order.item.as_str())
            .bind(refunds::order_done_name(order.id));
        Ok(noted.fetch_one(&self.pool).await?)
    }

    async fn is_returned(&self, payment: &PaymentId) -> Result<bool, LedgerError> {
        let returned = sqlx::query_scalar::<_, bool>(
            "SELECT EXISTS (SELECT FROM payments WHERE id = $1 AND returned_at IS NOT NULL)",
        );
        let returned = returned.bind(payment.as_str());
        Ok(returned.fetch_one(&self.pool).await?)
    }
}

#[async_trait]
impl Statements for Transaction {
    /// Most payments that are asked for have a row. The advisory lock also covers those without
    /// one: two reports of a payment must see each other's refunds. It ends with the transaction.
    async fn lock_payment(
        &mut self,
        payment: &PaymentId,
    ) -> Result<Option<PaymentRow>, LedgerError> {
        sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('stockade payment ' || $1, 0))")
            .bind(payment.as_str())
            .execute(&mut **self)
            .await?;
        let row = sqlx::query_as::<_, PaymentColumns>(
            "SELECT order_id, (extract(epoch FROM returned_at) * 1000)::bigint AS returned_ms, due_refund, due_amount, is_settled, dropped_order, dropped_item \
             FROM payments WHERE id = $1 FOR UPDATE",
        );
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
        let bound = sqlx::query_scalar::<_, Uuid>(
            "INSERT INTO payments (id, order_id, returned_at) VALUES ($1, $2, to_timestamp($3::double precision / 1000)) \
             ON CONFLICT (id) DO UPDATE SET returned_at = greatest(payments.returned_at, excluded.returned_at), \
                 order_id = CASE payments.order_id WHEN '00000000-0000-0000-0000-000000000000' THEN excluded.order_id ELSE payments.order_id END \
             RETURNING order_id",
        );
        let bound = bound
            .bind(payment.as_str())
            .bind(payer.unwrap_or(Uuid::nil()))
            .bind(at.as_millisecond());
        let bound = bound.fetch_one(&mut **self).await?;
        Ok(Some(bound).filter(|payer| !payer.is_nil()))
    }

    async fn mark_return_unclaimed(
        &mut self,
        payment: &PaymentId,
        before: Timestamp,
    ) -> Result<(), LedgerError> {
        sqlx::query("INSERT INTO unclaimed_returns (payment, since) VALUES ($1, now()) ON CONFLICT (payment) DO NOTHING")
            .bind(payment.as_str())
            .execute(&mut **self)
            .await?;
        sqlx::query(
            "WITH forgotten AS (DELETE FROM unclaimed_returns WHERE payment = ANY(ARRAY( \
                 SELECT payment FROM unclaimed_returns WHERE since < to_timestamp($1::double precision / 1000) \
                 ORDER BY since LIMIT 100 FOR UPDATE SKIP LOCKED)) RETURNING payment) \
             DELETE FROM payments WHERE id IN (SELECT payment FROM forgotten) AND order_id = '00000000-0000-0000-0000-000000000000'",
        )
        .bind(before.as_millisecond())
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    async fn write_due(
        &mut self,
        payment: &PaymentId,
        due: Option<&Due>,
    ) -> Result<(), LedgerError> {
        sqlx::query("UPDATE payments SET due_refund = $2, due_amount = $3 WHERE id = $1")
            .bind(payment.as_str())
            .bind(due.map(|due| &*due.refund))
            .bind(due.map(|due| signed(due.amount)))
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    /// The offset keeps PostgreSQL from walking the whole journal by its key instead.
    async fn unmatched(
        &mut self,
        payment: &PaymentId,
    ) -> Result<Option<JournalEntry>, LedgerError> {
        let row = sqlx::query_as::<_, JournalColumns>(
            "SELECT id, (extract(epoch FROM at) * 1000)::bigint AS at_ms, item, actor, action, token, before::text, after::text \
             FROM (SELECT * FROM journal WHERE action = 'unmatched_payment' AND after ->> 'payment' = $1 \
                     AND before ->> 'order' IS NOT NULL OFFSET 0) AS unmatched ORDER BY id LIMIT 1",
        );
        let row = row.bind(payment.as_str()).fetch_optional(&mut **self);
        row.await?.map(JournalEntry::try_from).transpose()
    }

    async fn payer(&mut self, id: Uuid, payment: &PaymentId) -> Result<Option<Payer>, LedgerError> {
        let payer = sqlx::query_as::<_, PayerColumns>(
            "SELECT id AS order_id, (SELECT cart FROM cart_lines WHERE order_id = orders.id) AS cart, false AS is_cart, item, state, \
                    coalesce(payment = $2, false) AS is_paid FROM orders WHERE id = $1 \
             UNION ALL (SELECT line.order_id, carts.id, true, line.item, carts.state, coalesce(carts.payment = $2, false) \
                        FROM carts JOIN cart_lines AS line ON line.cart = carts.id WHERE carts.id = $1 ORDER BY line.place LIMIT 1)",
        );
        payer
            .bind(id)
            .bind(payment.as_str())
            .fetch_optional(&mut **self)
            .await?
            .map(Payer::try_from)
            .transpose()
    }

    async fn refunds(&mut self, payment: &PaymentId) -> Result<Vec<KnownRefund>, LedgerError> {
        let rows = sqlx::query_as::<_, KnownRefundColumns>(
            "SELECT id, state, amount, (extract(epoch FROM created_at) * 1000)::bigint AS created_ms, \
                    (extract(epoch FROM failed_at) * 1000)::bigint AS failed_ms, is_done FROM refunds WHERE payment = $1 ORDER BY id",
        );
        let rows = rows.bind(payment.as_str()).fetch_all(&mut **self).await?;
        rows.into_iter().map(KnownRefund::try_from).collect()
    }

    async fn write_refund(
        &mut self,
        payment: &PaymentId,
        refund: &KnownRefund,
    ) -> Result<(), LedgerError> {
        sqlx::query(
            "INSERT INTO refunds (id, payment, state, amount, created_at, failed_at, is_done) \
             VALUES ($1, $2, $3, $4, to_timestamp($5::double precision / 1000), to_timestamp($6::double precision / 1000), $7) \
             ON CONFLICT (id) DO UPDATE SET state = excluded.state, failed_at = excluded.failed_at, is_done = excluded.is_done",
        )
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
        sqlx::query("UPDATE refunds SET unclaimed_at = now() WHERE id = $1")
            .bind(refund)
            .execute(&mut **self)
            .await?;
        sqlx::query(
            "DELETE FROM refunds WHERE id = ANY(ARRAY(SELECT id FROM refunds WHERE unclaimed_at < to_timestamp($1::double precision / 1000) \
             ORDER BY unclaimed_at LIMIT 100 FOR UPDATE SKIP LOCKED))",
        )
        .bind(before.as_millisecond())
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    async fn claim(&mut self, payment: &PaymentId) -> Result<(), LedgerError> {
        for statement in [
            "UPDATE refunds SET unclaimed_at = NULL WHERE payment = $1 AND unclaimed_at IS NOT NULL",
            "DELETE FROM unclaimed_returns WHERE payment = $1",
        ] {
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
        items::note(&mut **self, entry, Some(once)).await
    }

    async fn is_noted(&mut self, item: &ItemId, once: &str) -> Result<bool, LedgerError> {
        let noted = sqlx::query_scalar::<_, bool>(
            "SELECT EXISTS (SELECT FROM journal WHERE item = $1 AND once = $2)",
        );
        let noted = noted.bind(item.as_str()).bind(once);
        Ok(noted.fetch_one(&mut **self).await?)
    }

    async fn journal_entry(&mut self, id: u64) -> Result<Option<JournalEntry>, LedgerError> {
        let row = sqlx::query_as::<_, JournalColumns>(
            "SELECT id, (extract(epoch FROM at) * 1000)::bigint AS at_ms, item, actor, action, token, before::text, after::text \
             FROM journal WHERE id = $1",
        );
        let row = row.bind(signed(id)).fetch_optional(&mut **self).await?;
        row.map(JournalEntry::try_from).transpose()
    }
}
