//! Webhooks, on SQLite. All processes that open the file are on one machine, so leases go by its
//! clock.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::sqlite::SqliteQueryResult;
use uuid::Uuid;

use super::{SqliteLedger, Transaction, acts, json};
use crate::{
    EventCursor, FailedAttempt, LedgerError, NewAct, NewWebhook, Webhook, Webhooks,
    columns::WebhookColumns,
    convert::{signed, unreadable},
    transaction::{Outcome, end_as},
    webhooks::act_on,
};

macro_rules! webhook_columns {
    () => {
        "id, url, kinds, secret, created_at AS created_ms, 0 AS xid, seq, failures, failing_since AS failing_ms, next_attempt_at AS next_ms, \
         last_error, disabled_at AS disabled_ms"
    };
}

#[async_trait]
impl Webhooks for SqliteLedger {
    async fn add_webhook_by(
        &self,
        webhook: &NewWebhook,
        at_most: u32,
        actor: &str,
    ) -> Result<bool, LedgerError> {
        let mut transaction = self.write().await?;
        let added = sqlx::query(
            "INSERT INTO webhooks (id, url, kinds, secret, seq) \
             SELECT ?, ?, ?, ?, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) \
             WHERE (SELECT count(*) FROM webhooks) < ?",
        )
        .bind(webhook.id)
        .bind(&webhook.url)
        .bind(json(&webhook.kinds)?)
        .bind(&webhook.secret)
        .bind(at_most)
        .execute(&mut *transaction)
        .await;
        noted(transaction, added, &webhook.created_by(actor)).await
    }

    async fn webhooks(&self) -> Result<Vec<Webhook>, LedgerError> {
        let rows = sqlx::query_as::<_, WebhookColumns<String>>(concat!(
            "SELECT ",
            webhook_columns!(),
            " FROM webhooks ORDER BY created_at, id",
        ));
        all(rows.fetch_all(&self.readers).await?)
    }

    async fn remove_webhook(&self, id: Uuid, actor: &str) -> Result<bool, LedgerError> {
        let mut transaction = self.write().await?;
        let removed = sqlx::query("DELETE FROM webhooks WHERE id = ?").bind(id);
        let removed = removed.execute(&mut *transaction).await;
        noted(transaction, removed, &act_on(id, "remove_webhook", actor)).await
    }

    async fn enable_webhook(&self, id: Uuid, actor: &str) -> Result<bool, LedgerError> {
        let mut transaction = self.write().await?;
        let enabled = sqlx::query(
            "UPDATE webhooks SET disabled_at = NULL, failures = 0, failing_since = NULL, next_attempt_at = NULL WHERE id = ?",
        );
        let enabled = enabled.bind(id).execute(&mut *transaction).await;
        noted(transaction, enabled, &act_on(id, "enable_webhook", actor)).await
    }

    /// Looks first: the file has one writer at a time, and mostly no lease has to change.
    async fn lease_webhooks(
        &self,
        publisher: Uuid,
        lease: Duration,
    ) -> Result<Vec<Webhook>, LedgerError> {
        if self.webhooks().await?.is_empty() {
            return Ok(Vec::new());
        }
        let now = Timestamp::now().as_millisecond();
        let rows = sqlx::query_as::<_, WebhookColumns<String>>(concat!(
            "UPDATE webhooks SET publisher = ?1, leased_until = ?2 \
             WHERE disabled_at IS NULL AND (publisher IS NULL OR publisher = ?1 OR leased_until < ?3) RETURNING ",
            webhook_columns!(),
        ));
        let rows = rows
            .bind(publisher)
            .bind(now.saturating_add(milliseconds(lease)))
            .bind(now);
        all(rows.fetch_all(&self.writer).await?)
    }

    async fn release_webhooks(&self, publisher: Uuid) -> Result<(), LedgerError> {
        sqlx::query(
            "UPDATE webhooks SET publisher = NULL, leased_until = NULL WHERE publisher = ?",
        )
        .bind(publisher)
        .execute(&self.writer)
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
            "UPDATE webhooks SET seq = ?3, failures = 0, failing_since = NULL, next_attempt_at = NULL, last_error = NULL \
             WHERE id = ?1 AND publisher = ?2 AND seq <= ?3",
        )
        .bind(id)
        .bind(publisher)
        .bind(signed(to.seq))
        .execute(&self.writer)
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
            "UPDATE webhooks SET failures = failures + 1, failing_since = coalesce(failing_since, ?5), last_error = ?3, next_attempt_at = ?4, \
                    disabled_at = CASE WHEN ?4 IS NULL THEN ?5 END, \
                    publisher = CASE WHEN ?4 IS NULL THEN NULL ELSE publisher END, \
                    leased_until = CASE WHEN ?4 IS NULL THEN NULL ELSE leased_until END \
             WHERE id = ?1 AND publisher = ?2",
        )
        .bind(id)
        .bind(publisher)
        .bind(&failed.error)
        .bind(failed.next_attempt_at.map(Timestamp::as_millisecond))
        .bind(Timestamp::now().as_millisecond())
        .execute(&self.writer)
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
    changed: Result<SqliteQueryResult, sqlx::Error>,
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

fn all(rows: Vec<WebhookColumns<String>>) -> Result<Vec<Webhook>, LedgerError> {
    let kinds =
        |text: String| serde_json::from_str(&text).map_err(|_| unreadable("webhooks.kinds", text));
    rows.into_iter()
        .map(|row| row.into_webhook(kinds))
        .collect()
}
