//! Handlers that create, list, test and remove webhooks.

use ::events::{CloudEvent, Secret, Target, TargetError};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use ledger::{EventKind, NewAct, NewWebhook, Webhook};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    App, Problem,
    access::{AdminWith, Name, Read, WebhooksWrite},
    body::Json,
    problem::FieldError,
};
use crate::engine::EngineError;

/// A webhook to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookRequest {
    /// Where events are sent: an https URL whose host has public addresses only.
    #[schema(example = "https://shop.example/stockade")]
    url: String,
    /// The kinds of events to send. Default: all.
    #[serde(default)]
    #[schema(example = json!(["order.expired", "order.refund_due"]))]
    kinds: Vec<String>,
}

/// A webhook.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookBody {
    /// Its id.
    #[schema(value_type = String, example = "0f8b2c1e-5d7a-4f55-9a25-3f1f7f0c9b11")]
    id: Uuid,
    /// Where events are sent. Without the scope `webhooks:write` only the scheme and the host, because the
    /// rest may hold a secret.
    url: String,
    /// The kinds of events that are sent; empty: all.
    kinds: Vec<String>,
    /// The secret that signs its messages. Only in the answer to its creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// When it was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    created_at: Option<Timestamp>,
    /// The cursor of the last event that was delivered, or that is of another kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    /// Failed attempts in a row.
    failures: u32,
    /// When the first of them failed.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    failing_since: Option<Timestamp>,
    /// When the next attempt is due.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    next_attempt_at: Option<Timestamp>,
    /// Why the last attempt failed.
    #[schema(required = true)]
    last_error: Option<String>,
    /// Since when nothing is sent, because attempts failed for three days.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    disabled_at: Option<Timestamp>,
}

/// All webhooks.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookList {
    /// The webhooks, oldest first.
    data: Vec<WebhookBody>,
}

/// Result of a test.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookTest {
    /// Whether the receiver has accepted the event.
    delivered: bool,
    /// The receiver's status, if it has accepted.
    #[schema(required = true)]
    status: Option<u16>,
    /// Why it was not delivered.
    #[schema(required = true)]
    error: Option<String>,
}

impl WebhookBody {
    fn new(webhook: NewWebhook, secret: String) -> Self {
        Self {
            id: webhook.id,
            url: webhook.url,
            kinds: webhook.kinds,
            secret: Some(secret),
            created_at: None,
            cursor: None,
            failures: 0,
            failing_since: None,
            next_attempt_at: None,
            last_error: None,
            disabled_at: None,
        }
    }
}

impl WebhookBody {
    /// The webhook for an admin who may change it, or for one who may not.
    fn of(webhook: Webhook, may_change: bool) -> Self {
        let url = webhook.webhook.url;
        Self {
            id: webhook.webhook.id,
            url: if may_change { url } else { origin_of(&url) },
            kinds: webhook.webhook.kinds,
            secret: None,
            created_at: Some(webhook.created_at),
            cursor: Some(webhook.cursor.to_string()),
            failures: webhook.failures,
            failing_since: webhook.failing_since,
            next_attempt_at: webhook.next_attempt_at,
            last_error: webhook.last_error,
            disabled_at: webhook.disabled_at,
        }
    }
}

/// Scheme, host and port of a URL. Receivers put tokens into paths, queries and user names.
fn origin_of(url: &str) -> String {
    let origin = url::Url::parse(url).map(|url| url.origin());
    match origin {
        Ok(origin @ url::Origin::Tuple(..)) => origin.ascii_serialization(),
        _ => String::new(),
    }
}

fn refused(error: &TargetError) -> Problem {
    Problem::from(FieldError::new("url", error.to_string()))
}

fn known_kinds(kinds: &[String]) -> Result<(), Problem> {
    let is_known = |kind: &String| EventKind::ALL.iter().any(|known| known.as_str() == kind);
    let all = || {
        let words: Vec<_> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("expected one of {}", words.join(", "))
    };
    let errors: Vec<_> = kinds
        .iter()
        .enumerate()
        .filter(|(_, kind)| !is_known(kind))
        .map(|(at, _)| FieldError::of_row("kinds", at, all()))
        .collect();
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Problem::invalid_fields(errors))
    }
}

/// Creates a webhook, which gets the events from now on.
#[utoipa::path(post, path = "/v1/webhooks", operation_id = "createWebhook", tag = "admins", request_body = WebhookRequest,
    responses(AdminWith<WebhooksWrite>, (status = 201, description = "created; the only answer with the secret", body = WebhookBody),
        (status = 400, description = "`invalid_request`: also for a URL of a private address", body = Problem),
        (status = 409, description = "`too_many_webhooks`: nothing was changed", body = Problem), (status = 503, description = "`unavailable`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn create(
    State(app): State<App>,
    admin: AdminWith<WebhooksWrite>,
    Json(request): Json<WebhookRequest>,
) -> Result<Response, Problem> {
    known_kinds(&request.kinds)?;
    let target = Target::resolve(&request.url, app.targets).await;
    let target = target.map_err(|error| refused(&error))?;
    let secret = Secret::random().map_err(|error| {
        tracing::error!(%error, "no secret for a webhook");
        Problem::internal()
    })?;
    let webhook = NewWebhook {
        id: Uuid::new_v4(),
        url: target.as_str().to_owned(),
        kinds: request.kinds,
        secret: secret.expose().to_owned(),
    };
    let max = app.webhooks_max;
    let ledger = &app.engine.ledger;
    let added = ledger.add_webhook_by(&webhook, max, &admin.name).await;
    if !added.map_err(EngineError::of_change)? {
        return Err(Problem::too_many_webhooks(max));
    }
    let location = HeaderValue::try_from(format!("/v1/webhooks/{}", webhook.id));
    let body = WebhookBody::new(webhook, secret.expose().to_owned());
    let mut response = (StatusCode::CREATED, axum::Json(body)).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// All webhooks, without their secrets. Their whole URLs need the scope `webhooks:write`.
#[utoipa::path(get, path = "/v1/webhooks", operation_id = "listWebhooks", tag = "admins",
    responses(AdminWith<Read>, (status = 200, description = "all webhooks, oldest first", body = WebhookList),
        (status = 503, description = "`unavailable`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn list(
    State(app): State<App>,
    admin: AdminWith<Read>,
) -> Result<Response, Problem> {
    let all = app.engine.ledger.webhooks().await;
    let all = all.map_err(EngineError::from)?;
    let data = all
        .into_iter()
        .map(|webhook| WebhookBody::of(webhook, admin.writes_webhooks))
        .collect();
    Ok(axum::Json(WebhookList { data }).into_response())
}

/// Removes a webhook. Nothing more is sent to it.
#[utoipa::path(delete, path = "/v1/webhooks/{webhook}", operation_id = "deleteWebhook", tag = "admins",
    params(("webhook" = String, Path, description = "the webhook's id")),
    responses(AdminWith<WebhooksWrite>, (status = 204, description = "removed"),
        (status = 404, description = "`webhook_not_found`", body = Problem), (status = 503, description = "`unavailable`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn remove(
    State(app): State<App>,
    admin: AdminWith<WebhooksWrite>,
    Name(id): Name,
) -> Result<StatusCode, Problem> {
    let (id, ledger) = (parse(&id)?, &app.engine.ledger);
    let removed = ledger.remove_webhook(id, &admin.name).await;
    found(removed.map_err(EngineError::of_change)?)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Enables a webhook that was disabled, and makes its next attempt due now. It goes on where it
/// stopped.
#[utoipa::path(post, path = "/v1/webhooks/{webhook}/enable", operation_id = "enableWebhook", tag = "admins",
    params(("webhook" = String, Path, description = "the webhook's id")),
    responses(AdminWith<WebhooksWrite>, (status = 204, description = "enabled"),
        (status = 404, description = "`webhook_not_found`", body = Problem), (status = 503, description = "`unavailable`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn enable(
    State(app): State<App>,
    admin: AdminWith<WebhooksWrite>,
    Name(id): Name,
) -> Result<StatusCode, Problem> {
    let (id, ledger) = (parse(&id)?, &app.engine.ledger);
    let enabled = ledger.enable_webhook(id, &admin.name).await;
    found(enabled.map_err(EngineError::of_change)?)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sends a test event to a webhook, now and once. Its type is `stockade.webhook.test`.
#[utoipa::path(post, path = "/v1/webhooks/{webhook}/test", operation_id = "testWebhook", tag = "admins",
    params(("webhook" = String, Path, description = "the webhook's id")),
    responses(AdminWith<WebhooksWrite>, (status = 200, description = "sent; `delivered` says whether the receiver has accepted it", body = WebhookTest), (status = 404, description = "`webhook_not_found`", body = Problem),
        (status = 503, description = "`unavailable`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn test(
    State(app): State<App>,
    admin: AdminWith<WebhooksWrite>,
    Name(id): Name,
) -> Result<Response, Problem> {
    let id = parse(&id)?;
    let all = app.engine.ledger.webhooks().await;
    let all = all.map_err(EngineError::from)?;
    let webhook = all.into_iter().find(|webhook| webhook.webhook.id == id);
    let webhook = webhook.ok_or_else(Problem::webhook_not_found)?;
    let sender = app.sender.as_ref().ok_or_else(Problem::internal)?;
    let noted = app.engine.ledger.note_act(&test_by(id, &admin.name)).await;
    noted.map_err(EngineError::of_change)?;
    let event = CloudEvent::test(format!("test-{}", Uuid::new_v4().simple()));
    let sent = sender.send(&webhook.webhook, &event).await;
    let body = WebhookTest {
        delivered: sent.is_ok(),
        status: sent.as_ref().ok().map(StatusCode::as_u16),
        error: sent.err().map(|error| error.to_string()),
    };
    Ok(axum::Json(body).into_response())
}

/// The entry of the service journal for a test, which is noted before the event is sent.
fn test_by(id: Uuid, admin: &str) -> NewAct {
    NewAct {
        actor: admin.into(),
        action: "test_webhook".into(),
        subject: Some(id.to_string()),
        before: serde_json::json!({}),
        after: serde_json::json!({}),
    }
}

fn parse(id: &str) -> Result<Uuid, Problem> {
    Uuid::parse_str(id).map_err(|_| Problem::webhook_not_found())
}

fn found(exists: bool) -> Result<(), Problem> {
    exists.then_some(()).ok_or_else(Problem::webhook_not_found)
}

#[cfg(test)]
mod tests {
    use super::origin_of;

    #[test]
    fn an_origin_has_nothing_that_may_be_secret() {
        for (url, origin) in [
            (
                "https://shop.example/hook/T0KEN?key=T0KEN",
                "https://shop.example",
            ),
            (
                "https://T0KEN:T0KEN@shop.example:8443/#T0KEN",
                "https://shop.example:8443",
            ),
            ("http://[::1]:9/T0KEN", "http://[::1]:9"),
            ("T0KEN", ""),
            ("data:T0KEN", ""),
        ] {
            assert_eq!(origin_of(url), origin);
        }
    }
}
