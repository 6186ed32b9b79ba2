//! Webhooks, on PostgreSQL. Leases go by the database's clock.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::postgres::PgQueryResult;
use uuid::Uuid;

use super::{PostgresLedger, Transaction, acts, connections};
use crate::{
    EventCursor, FailedAttempt, LedgerError, NewAct, NewWebhook, Webhook, Webhooks,
    columns::WebhookColumns,
    convert::signed,
    transaction::{Outcome, end_as},
    webhooks::act_on,
};

macro_rules! webhook_columns {
    () => {
        "id, url, kinds, secret, (extract(epoch FROM created_at) * 1000)::bigint AS created_ms, xid::text::bigint AS xid, seq, failures::bigint, \
         (extract(epoch FROM failing_since) * 1000)::bigint AS failing_ms, (extract(epoch FROM next_attempt_at) * 1000)::bigint AS next_ms, \
         last_error, (extract(epoch FROM disabled_at) * 1000)::bigint AS disabled_ms"
    };
}

#[async_trait]
impl Webhooks for PostgresLedger {
    /// Everything below `pg_snapshot_xmin` has happened before; what is still open is sent.
    ///
    /// The lock makes creations wait for each other, so that each counts the ones before it. It
    /// stops no publisher and no reader.
    async fn add_webhook_by(
        &self,
        webhook: &NewWebhook,
        at_most: u32,
        actor: &str,
    ) -> Result<bool, LedgerError> {
        let mut transaction = connections::begin(&self.pool).await?;
        sqlx::query("LOCK TABLE webhooks IN SHARE UPDATE EXCLUSIVE MODE")
            .execute(&mut *transaction)
            .await?;
        let added = sqlx::query(
            "INSERT INTO webhooks (id, url, kinds, secret, xid, seq) \
             SELECT $1, $2, $3, $4, pg_snapshot_xmin(pg_current_snapshot()), 0 WHERE (SELECT count(*) FROM webhooks) < $5",
        )
        .bind(webhook.id)
        .bind(&webhook.url)
        .bind(&webhook.kinds)
        .bind(&webhook.secret)
        .bind(i64::from(at_most))
        .execute(&mut *transaction)
        .await;
        noted(transaction, added, &webhook.created_by(actor)).await
    }

    async fn webhooks(&self) -> Result<Vec<Webhook>, LedgerError> {
        let rows = sqlx::query_as::<_, WebhookColumns<Vec<String>>>(concat!(
            "SELECT ",
            webhook_columns!(),
            " FROM webhooks ORDER BY created_at, id",
        ));
        all(rows.fetch_all(&self.pool).await?)
    }

    async fn remove_webhook(&self, id: Uuid, actor: &str) -> Result<bool, LedgerError> {
        let mut transaction = connections::begin(&self.pool).await?;
        let removed = sqlx::query("DELETE FROM webhooks WHERE id = $1").bind(id);
        let removed = removed.execute(&mut *transaction).await;
        noted(transaction, removed, &act_on(id, "remove_webhook", actor)).await
    }

    async fn enable_webhook(&self, id: Uuid, actor: &str) -> Result<bool, LedgerError> {
        let mut transaction = connections::begin(&self.pool).await?;
        let enabled = sqlx::query(
            "UPDATE webhooks SET disabled_at = NULL, failures = 0, failing_since = NULL, next_attempt_at = NULL WHERE id = $1",
        );
        let enabled = enabled.bind(id).execute(&mut *transaction).await;
        noted(transaction, enabled, &act_on(id, "enable_webhook", actor)).await
    }

    async fn lease_webhooks(
        &self,
        publisher: Uuid,
        lease: Duration,
    ) -> Result<Vec<Webhook>, LedgerError> {
        let rows = sqlx::query_as::<_, WebhookColumns<Vec<String>>>(concat!(
            "WITH mine AS MATERIALIZED (SELECT id AS leased FROM webhooks WHERE disabled_at IS NULL \
                AND (publisher IS NULL OR publisher = $1 OR leased_until < now()) ORDER BY id FOR UPDATE SKIP LOCKED) \
             UPDATE webhooks SET publisher = $1, leased_until = now() + $2 * interval '1 millisecond' \
             FROM mine WHERE id = leased RETURNING ",
            webhook_columns!(),
        ));
        let rows = rows.bind(publisher).bind(milliseconds(lease));
        all(rows.fetch_all(&self.pool).await?)
    }

    async fn release_webhooks(&self, publisher: Uuid) -> Result<(), LedgerError> {
        sqlx::query(
            "UPDATE webhooks SET publisher = NULL, leased_until = NULL WHERE publisher = $1",
        )
        .bind(publisher)
        .execute(&mut *connections::lend(&self.pool).await?)
        .await?;
        Ok(())
    }

    async fn advance_webhook(
        &self,
        id: Uuid,
        publisher: Uuid,
        to: EventCursor,
    ) -> Result<bool, LedgerError> {
        let advanced = sqlx::query(
            "UPDATE webhooks SET xid = $3::text::xid8, seq = $4, failures = 0, failing_since = NULL, next_attempt_at = NULL, last_error = NULL \
             WHERE id = $1 AND publisher = $2 AND (xid, seq) <= ($3::text::xid8, $4)",
        )
        .bind(id)
        .bind(publisher)
        .bind(to.xid.to_string())
        .bind(signed(to.seq))
        .execute(&mut *connections::lend(&self.pool).await?)
        .await?;
        Ok(advanced.rows_affected() == 1)
    }

    async fn fail_webhook(
        &self,
        id: Uuid,
        publisher: Uuid,
        failed: &FailedAttempt,
    ) -> Result<bool, LedgerError> {
        let noted = sqlx::query(
            "UPDATE webhooks SET failures = failures + 1, failing_since = coalesce(failing_since, now()), last_error = $3, \
                    next_attempt_at = to_timestamp($4::double precision / 1000), \
                    disabled_at = CASE WHEN $4::bigint IS NULL THEN now() END, \
                    publisher = CASE WHEN $4::bigint IS NULL THEN NULL ELSE publisher END, \
                    leased_until = CASE WHEN $4::bigint IS NULL THEN NULL ELSE leased_until END \
             WHERE id = $1 AND publisher = $2",
        )
        .bind(id)
        .bind(publisher)
        .bind(&failed.error)
        .bind(failed.next_attempt_at.map(Timestamp::as_millisecond))
        .execute(&mut *connections::lend(&self.pool).await?)
        .await?;
        Ok(noted.rows_affected() == 1)
    }
}

pub(super) fn milliseconds(lease: Duration) -> i64 {
    i64::try_from(lease.as_millis()).unwrap_or(i64::MAX)
}

/// Ends a transaction that was to change one webhook. Notes the act if there was one to change, and
/// returns whether there was.
async fn noted(
    mut transaction: Transaction,
    changed: Result<PgQueryResult, sqlx::Error>,
    act: &NewAct,
) -> Result<bool, LedgerError> {
    let outcome = match changed {
        Ok(changed) if changed.rows_affected() == 1 => {
            let noted = acts::note(&mut *transaction, act).await;
            noted.map(|()| Outcome::Done(true))
        }
        Ok(_) => Ok(Outcome::Unchanged(false)),
        Err(error) => Err(error.into()),
    };
    end_as(transaction, outcome).await
}

fn all(rows: Vec<WebhookColumns<Vec<String>>>) -> Result<Vec<Webhook>, LedgerError> {
    rows.into_iter().map(|row| row.into_webhook(Ok)).collect()
}
