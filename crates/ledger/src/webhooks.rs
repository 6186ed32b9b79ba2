//! Webhooks: where events are sent, and how far each has got.

use std::fmt;

use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use crate::{EventCursor, NewAct};

/// A webhook to create.
#[derive(Clone)]
pub struct NewWebhook {
    /// Its id.
    pub id: Uuid,
    /// Where its events are sent.
    pub url: String,
    /// The kinds of events to send; empty: all.
    pub kinds: Vec<String>,
    /// Signs its messages.
    pub secret: String,
}

impl fmt::Debug for NewWebhook {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewWebhook")
            .field("id", &self.id)
            .field("url", &self.url)
            .field("kinds", &self.kinds)
            .finish_non_exhaustive()
    }
}

impl NewWebhook {
    /// The entry of the service journal for what `actor` has done to the webhook. Of the URL it has
    /// what comes before the path, and no account.
    pub(crate) fn created_by(&self, actor: &str) -> NewAct {
        NewAct {
            after: json!({ "origin": origin(&self.url), "kinds": self.kinds }),
            ..act_on(self.id, "create_webhook", actor)
        }
    }
}

/// The entry of the service journal for what `actor` has done to the webhook.
pub(crate) fn act_on(id: Uuid, action: &str, actor: &str) -> NewAct {
    NewAct {
        actor: actor.into(),
        action: action.into(),
        subject: Some(id.to_string()),
        before: json!({}),
        after: json!({}),
    }
}

/// Scheme, host and port of a URL.
fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}")
}

/// A webhook and how far it has got.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// What it was created with.
    pub webhook: NewWebhook,
    /// When it was created.
    pub created_at: Timestamp,
    /// The last event that was delivered, or that is of another kind.
    pub cursor: EventCursor,
    /// Failed attempts in a row.
    pub failures: u32,
    /// When the first of them failed.
    pub failing_since: Option<Timestamp>,
    /// When the next attempt is due; `None`: now.
    pub next_attempt_at: Option<Timestamp>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// Since when nothing is sent, because attempts failed for too long.
    pub disabled_at: Option<Timestamp>,
}

impl Webhook {
    /// Whether it gets events of this kind.
    pub fn wants(&self, kind: &str) -> bool {
        let kinds = &self.webhook.kinds;
        kinds.is_empty() || kinds.iter().any(|wanted| wanted == kind)
    }
}

/// What follows from a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempt {
    /// Why it failed.
    pub error: String,
    /// When the event is sent again. `None`: the webhook is disabled.
    pub next_attempt_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::origin;

    #[test]
    fn the_origin_has_neither_account_nor_path() {
        let origins = [
            ("https://shop.example/hook/s3cret", "https://shop.example"),
            ("https://shop.example:8443", "https://shop.example:8443"),
            ("https://ann:s3cret@shop.example/x", "https://shop.example"),
            ("https://shop.example?token=s3cret", "https://shop.example"),
            ("https://shop.example#s3cret@x", "https://shop.example"),
            ("http://[::1]:9000/x@y", "http://[::1]:9000"),
        ];
        for (url, expected) in origins {
            assert_eq!(origin(url), expected, "{url}");
        }
    }
}
