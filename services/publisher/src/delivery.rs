//! The task of one webhook: reads its next events, sends them one after the other, and moves its
//! position.

use std::{sync::Arc, time::Duration};

use events::{CloudEvent, SendError};
use jiff::Timestamp;
use ledger::{Event, Events, FailedAttempt, LedgerError, NewJournalEntry, Webhook};
use serde_json::json;
use supervision::ErrorLatch;
use tokio::sync::Notify;

use crate::{ERRORS, Publisher, retry::next_attempt};

/// Events of one read. Those of other kinds are skipped together.
const PAGE: usize = 100;

/// How long a request may still take when the publisher stops.
const GRACE: Duration = Duration::from_secs(2);

/// Whether the task goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// There may be more events.
    Read,
    /// There are none now, or the last attempt failed.
    Pause(Duration),
    /// Another publisher has the webhook, or it is disabled.
    End,
}

/// Sends events of the webhook until the publisher stops or loses it.
pub(crate) async fn run(publisher: Arc<Publisher>, webhook: Webhook, wake: Arc<Notify>) {
    let pause = webhook.next_attempt_at.map_or(Duration::ZERO, until);
    let mut delivery = Delivery {
        latch: ErrorLatch::new("reading events", ERRORS),
        publisher,
        webhook,
        wake,
    };
    delivery.pause(pause).await;
    while !delivery.publisher.stop.is_cancelled() {
        match delivery.step().await {
            Ok(Next::Read) => delivery.latch.recovered(),
            Ok(Next::Pause(pause)) => {
                delivery.latch.recovered();
                delivery.pause(pause).await;
            }
            Ok(Next::End) => return,
            Err(error) => {
                delivery.latch.failed(&error);
                let pause = delivery.publisher.settings.poll_interval;
                delivery.pause(pause).await;
            }
        }
    }
}

fn until(at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default()
}

struct Delivery {
    publisher: Arc<Publisher>,
    webhook: Webhook,
    wake: Arc<Notify>,
    latch: ErrorLatch,
}

/// A webhook that was removed, or that another publisher has now, has no lag here: the page of
/// metrics leaves out what is no number.
impl Drop for Delivery {
    fn drop(&mut self) {
        self.set_lag(f64::NAN);
    }
}

impl Delivery {
    async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.wake.notified() => {}
            () = self.publisher.stop.cancelled() => {}
        }
    }

    /// Sends the next page of events, up to the first that fails.
    async fn step(&mut self) -> Result<Next, LedgerError> {
        let page = self.publisher.ledger.events(self.webhook.cursor, PAGE);
        match page.await? {
            Events::Page(events) if events.is_empty() => {
                self.report_lag(None);
                Ok(Next::Pause(self.publisher.settings.poll_interval))
            }
            Events::Page(events) => self.send_all(events).await,
            Events::Removed(oldest) => {
                tracing::warn!(webhook = %self.webhook.webhook.id, "events that the webhook has not got were removed, because they were too old");
                self.advance(oldest).await
            }
            Events::Unknown => {
                let error = "the ledger does not know the webhook's position; was it restored from a backup? Create the webhook again";
                self.failed(error.into(), false, None).await
            }
        }
    }

    async fn send_all(&mut self, events: Vec<Event>) -> Result<Next, LedgerError> {
        let last = events.last().map(|event| event.cursor);
        let is_wanted = |event: &Event| self.webhook.wants(&event.kind);
        let wanted: Vec<_> = events.into_iter().filter(is_wanted).collect();
        self.report_lag(wanted.first());
        for event in wanted {
            if self.publisher.stop.is_cancelled() {
                return Ok(Next::End);
            }
            match self.send(event).await? {
                Next::Read => {}
                other => return Ok(other),
            }
        }
        match last {
            Some(last) if last > self.webhook.cursor => self.advance(last).await,
            _ => Ok(Next::Read),
        }
    }

    async fn send(&mut self, event: Event) -> Result<Next, LedgerError> {
        let envelope = CloudEvent::from(event.clone());
        let sent = tokio::select! {
            sent = self.publisher.sender.send(&self.webhook.webhook, &envelope) => sent,
            // The next publisher sends it again.
            () = self.publisher.stopped_for(GRACE) => return Ok(Next::End),
        };
        let result = if sent.is_ok() { "delivered" } else { "failed" };
        metrics::counter!("stockade_webhook_deliveries_total", "result" => result).increment(1);
        match sent {
            Ok(_) => self.advance(event.cursor).await,
            Err(error) => {
                // By the convention of Standard Webhooks, such a receiver wants no more events.
                let is_gone =
                    matches!(&error, SendError::Refused(status) if status.as_u16() == 410);
                self.failed(error.to_string(), is_gone, Some(&event)).await
            }
        }
    }

    async fn advance(&mut self, to: ledger::EventCursor) -> Result<Next, LedgerError> {
        let Webhook { webhook, .. } = &self.webhook;
        let publisher = &self.publisher;
        let has = publisher
            .ledger
            .advance_webhook(webhook.id, publisher.id, to)
            .await?;
        if !has {
            return Ok(Next::End);
        }
        self.webhook.cursor = to;
        (self.webhook.failures, self.webhook.failing_since) = (0, None);
        Ok(Next::Read)
    }

    /// Notes a failed attempt, and when the next one follows.
    async fn failed(
        &mut self,
        error: String,
        is_gone: bool,
        event: Option<&Event>,
    ) -> Result<Next, LedgerError> {
        // No clock that is days ahead ends a webhook.
        let own = (self.publisher.settings.clock)();
        let now = own.min(self.publisher.ledger.time().await?);
        let since = *self.webhook.failing_since.get_or_insert(now);
        self.webhook.failures = self.webhook.failures.saturating_add(1);
        let settings = &self.publisher.settings;
        let next = next_attempt(settings, self.webhook.failures, since, now).filter(|_| !is_gone);
        tracing::debug!(webhook = %self.webhook.webhook.id, failures = self.webhook.failures, %error, "an event was not delivered");
        let failed = FailedAttempt {
            error,
            next_attempt_at: next,
        };
        let (id, publisher) = (self.webhook.webhook.id, self.publisher.id);
        let has = self.publisher.ledger.fail_webhook(id, publisher, &failed);
        if !has.await? {
            return Ok(Next::End);
        }
        let Some(next) = next else {
            self.disabled(&failed.error, event).await?;
            return Ok(Next::End);
        };
        let pause = next.duration_since(now);
        Ok(Next::Pause(Duration::try_from(pause).unwrap_or_default()))
    }

    /// The journal belongs to items: the entry stands with the item of the event that failed.
    async fn disabled(&self, error: &str, event: Option<&Event>) -> Result<(), LedgerError> {
        let id = self.webhook.webhook.id;
        tracing::error!(webhook = %id, error, "the webhook is disabled: its receiver has accepted no event for too long");
        metrics::counter!("stockade_webhooks_disabled_total").increment(1);
        let Some(event) = event else {
            return Ok(());
        };
        let entry = NewJournalEntry {
            item: event.item.clone(),
            actor: "publisher".into(),
            action: "webhook_disabled".into(),
            token: None,
            before: json!({ "webhook": id, "event": event.cursor.to_string() }),
            after: json!({ "error": error }),
        };
        self.publisher.ledger.note(&entry).await
    }

    /// How old the oldest event is that the webhook has not got.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn report_lag(&self, oldest: Option<&Event>) {
        let age = oldest.map_or(0, |event| {
            Timestamp::now().as_millisecond() - event.at.as_millisecond()
        });
        self.set_lag(age.max(0) as f64 / 1000.0);
    }

    fn set_lag(&self, seconds: f64) {
        let id = self.webhook.webhook.id.to_string();
        metrics::gauge!("stockade_webhook_lag_seconds", "webhook" => id).set(seconds);
    }
}
