//! Webhooks and the publishers that send their events.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::{EventCursor, FailedAttempt, LedgerError, NewWebhook, Webhook};

/// Webhooks. A publisher leases those that it sends events to, so that several publishers share
/// them. A lease that ended while its publisher was still sending can only repeat an event.
#[async_trait]
pub trait Webhooks: Send + Sync + 'static {
    /// Creates a webhook that gets the events from now on, unless there are `at_most` already.
    /// Returns whether it was created. The service journal names `actor`, and not the path of the
    /// URL, which may hold a secret.
    async fn add_webhook_by(
        &self,
        webhook: &NewWebhook,
        at_most: u32,
        actor: &str,
    ) -> Result<bool, LedgerError>;

    /// [`Webhooks::add_webhook_by`] for a program that serves itself.
    async fn add_webhook(&self, webhook: &NewWebhook, at_most: u32) -> Result<bool, LedgerError> {
        self.add_webhook_by(webhook, at_most, "stockade").await
    }

    /// All webhooks, oldest first.
    async fn webhooks(&self) -> Result<Vec<Webhook>, LedgerError>;

    /// Removes a webhook. Returns whether it existed. The service journal names `actor`.
    async fn remove_webhook(&self, id: Uuid, actor: &str) -> Result<bool, LedgerError>;

    /// Makes the next attempt due now and enables a webhook that was disabled; it goes on where it
    /// stopped. Returns whether it exists. The service journal names `actor`.
    async fn enable_webhook(&self, id: Uuid, actor: &str) -> Result<bool, LedgerError>;

    /// Leases the enabled webhooks that no other publisher has leased, and extends the leases of
    /// this one. Returns all that it has.
    async fn lease_webhooks(
        &self,
        publisher: Uuid,
        lease: Duration,
    ) -> Result<Vec<Webhook>, LedgerError>;

    /// Ends the leases of the publisher.
    async fn release_webhooks(&self, publisher: Uuid) -> Result<(), LedgerError>;

    /// Moves a webhook to the cursor, after everything up to it was delivered or skipped. Returns
    /// whether the publisher still has the webhook.
    async fn advance_webhook(
        &self,
        id: Uuid,
        publisher: Uuid,
        to: EventCursor,
    ) -> Result<bool, LedgerError>;

    /// Notes a failed attempt. Returns whether the publisher still has the webhook.
    async fn fail_webhook(
        &self,
        id: Uuid,
        publisher: Uuid,
        failed: &FailedAttempt,
    ) -> Result<bool, LedgerError>;
}
