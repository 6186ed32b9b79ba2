//! Webhooks.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    HAS_ONE_WRITER, QueryResult, Store, Transaction, WEBHOOKS_LOCK, acts, begin, leases, lend,
    list,
    sql::webhooks::{ADD, ADVANCE, ENABLE, FAIL, LEASE, RELEASE, REMOVE, WEBHOOKS},
    step_reads,
};
use crate::{
    EventCursor, FailedAttempt, LedgerError, NewAct, NewWebhook, Webhook, Webhooks,
    columns::WebhookColumns,
    transaction::{Outcome, end_as},
    webhooks::act_on,
};

#[async_trait]
impl Webhooks for Store {
    async fn add_webhook_by(
        &self,
        webhook: &NewWebhook,
        at_most: u32,
        actor: &str,
    ) -> Result<bool, LedgerError> {
        let mut transaction = begin(self).await?;
        if let Some(lock) = WEBHOOKS_LOCK {
            sqlx::query(lock).execute(&mut *transaction).await?;
        }
        let added = sqlx::query(ADD)
            .bind(webhook.id)
            .bind(&webhook.url)
            .bind(list(webhook.kinds.iter().map(String::as_str))?)
            .bind(&webhook.secret)
            .bind(i64::from(at_most))
            .execute(&mut *transaction)
            .await;
        noted(transaction, added, &webhook.created_by(actor)).await
    }

    async fn webhooks(&self) -> Result<Vec<Webhook>, LedgerError> {
        let rows = sqlx::query_as::<_, WebhookColumns>(WEBHOOKS);
        all(rows.fetch_all(step_reads(self)).await?)
    }

    async fn remove_webhook(&self, id: Uuid, actor: &str) -> Result<bool, LedgerError> {
        let mut transaction = begin(self).await?;
        let removed = sqlx::query(REMOVE).bind(id);
        let removed = removed.execute(&mut *transaction).await;
        noted(transaction, removed, &act_on(id, "remove_webhook", actor)).await
    }

    async fn enable_webhook(&self, id: Uuid, actor: &str) -> Result<bool, LedgerError> {
        let mut transaction = begin(self).await?;
        let enabled = sqlx::query(ENABLE).bind(id);
        let enabled = enabled.execute(&mut *transaction).await;
        noted(transaction, enabled, &act_on(id, "enable_webhook", actor)).await
    }

    /// Most ledgers have no webhooks, so a ledger with one writer at a time is asked for them first.
    async fn lease_webhooks(
        &self,
        publisher: Uuid,
        lease: Duration,
    ) -> Result<Vec<Webhook>, LedgerError> {
        if HAS_ONE_WRITER && self.webhooks().await?.is_empty() {
            return Ok(Vec::new());
        }
        let rows = sqlx::query_as::<_, WebhookColumns>(LEASE)
            .bind(publisher)
            .bind(milliseconds(lease))
            .fetch_all(&mut *lend(self).await?)
            .await?;
        all(rows)
    }

    async fn release_webhooks(&self, publisher: Uuid) -> Result<(), LedgerError> {
        leases::release(self, sqlx::query(RELEASE).bind(publisher)).await
    }

    async fn advance_webhook(
        &self,
        id: Uuid,
        publisher: Uuid,
        to: EventCursor,
    ) -> Result<bool, LedgerError> {
        let advance = sqlx::query(ADVANCE).bind(id).bind(publisher);
        leases::advance(self, advance, to).await
    }

    async fn fail_webhook(
        &self,
        id: Uuid,
        publisher: Uuid,
        failed: &FailedAttempt,
    ) -> Result<bool, LedgerError> {
        let fail = sqlx::query(FAIL)
            .bind(id)
            .bind(publisher)
            .bind(&failed.error)
            .bind(failed.next_attempt_at.map(Timestamp::as_millisecond));
        leases::change(self, fail).await
    }
}

/// A duration as statements take it.
pub(super) fn milliseconds(lease: Duration) -> i64 {
    i64::try_from(lease.as_millis()).unwrap_or(i64::MAX)
}

/// Ends a transaction that was to change one webhook. Notes the act if there was one to change, and
/// returns whether there was.
async fn noted(
    mut transaction: Transaction,
    changed: Result<QueryResult, sqlx::Error>,
    act: &NewAct,
) -> Result<bool, LedgerError> {
    let outcome = match changed {
        Ok(changed) if changed.rows_affected() == 1 => {
            let noted = acts::note(&mut transaction, act).await;
            noted.map(|()| Outcome::Done(true))
        }
        Ok(_) => Ok(Outcome::Unchanged(false)),
        Err(error) => Err(error.into()),
    };
    end_as(transaction, outcome).await
}

fn all(rows: Vec<WebhookColumns>) -> Result<Vec<Webhook>, LedgerError> {
    rows.into_iter().map(Webhook::try_from).collect()
}
