//! Every error as `application/problem+json` (RFC 9457), in one place.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use domain::{Invalid, OrderState};
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use crate::engine::EngineError;

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// Always `about:blank`: the `code` tells problems apart.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The status in words.
    title: &'static str,
    /// The HTTP status.
    #[serde(serialize_with = "number")]
    #[schema(value_type = u16, example = 409)]
    status: StatusCode,
    /// What programs should go by. It never changes its meaning.
    #[schema(example = "sold_out")]
    code: &'static str,
    /// What people should read.
    detail: String,
    /// The field of the request that was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// With `not_open`: the item's state. With `order_not_...`: the order's.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    /// With `not_open`: from when on the item sells, or null.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    opens_at: Option<Option<Timestamp>>,
    #[serde(skip)]
    retry_after: Option<u32>,
}

fn number<S: Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

impl Problem {
    fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self {
            kind: "about:blank",
            title,
            status,
            code,
            detail: detail.into(),
            field: None,
            state: None,
            opens_at: None,
            retry_after: None,
        }
    }

    pub(crate) fn invalid(field: impl Into<String>, expected: impl std::fmt::Display) -> Self {
        let field = field.into();
        let detail = format!("{field}: {expected}");
        Self {
            field: Some(field),
            ..Self::new(StatusCode::BAD_REQUEST, "invalid_request", detail)
        }
    }

    pub(crate) fn unauthorized(expected: &str) -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            format!("expected `Authorization: Bearer TOKEN` with {expected}"),
        )
    }

    pub(crate) fn invalid_signature(what: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "invalid_signature", what)
    }

    pub(crate) fn no_payment_secret() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "invalid_signature",
            "this service has no payment secret (STOCKADE_PAYMENT_SECRET), so no signature is good",
        )
    }

    fn of_state(code: &'static str, state: OrderState, detail: &str) -> Self {
        Self {
            state: Some(state.to_string()),
            ..Self::new(
                StatusCode::CONFLICT,
                code,
                format!("the order is {state}: {detail}"),
            )
        }
    }

    pub(crate) fn not_payable(state: OrderState) -> Self {
        Self::of_state(
            "order_not_payable",
            state,
            "the payment is to be given back; the journal has it",
        )
    }

    pub(crate) fn already_paid() -> Self {
        let detail = "another payment has paid the order; this one is to be given back, and the journal has it";
        Self::new(StatusCode::CONFLICT, "already_paid", detail)
    }

    pub(crate) fn not_cancellable(state: OrderState) -> Self {
        Self::of_state(
            "order_not_cancellable",
            state,
            "only a held order can be cancelled; nothing was changed",
        )
    }

    pub(crate) fn not_refundable(state: OrderState) -> Self {
        Self::of_state(
            "order_not_refundable",
            state,
            "only a paid order can be refunded; nothing was changed",
        )
    }

    pub(crate) fn other_amount(expected: u64) -> Self {
        let detail = format!(
            "amount_cents: expected {expected}, which is what the order costs; the order is as it was, and the journal has the payment"
        );
        Self {
            field: Some("amount_cents".into()),
            ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "amount_mismatch", detail)
        }
    }

    pub(crate) fn other_order() -> Self {
        let detail = "order: the message is signed for another order than that of the path; nothing was changed";
        Self {
            field: Some("order".into()),
            ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "order_mismatch", detail)
        }
    }

    pub(crate) fn version_mismatch(version: u64) -> Self {
        let detail =
            format!("If-Match: the item's version is {version} by now; nothing was changed");
        Self {
            field: Some("If-Match".into()),
            ..Self::new(StatusCode::PRECONDITION_FAILED, "version_mismatch", detail)
        }
    }

    pub(crate) fn if_match_required() -> Self {
        let detail = "If-Match: expected the item's version, as ETag of GET /items/{item} gives it to admins";
        Self {
            field: Some("If-Match".into()),
            ..Self::new(
                StatusCode::PRECONDITION_REQUIRED,
                "if_match_required",
                detail,
            )
        }
    }

    pub(crate) fn not_enough_unsold(available: u64) -> Self {
        let detail = format!(
            "stock: only {available} units are nobody's, and more would have to go; nothing was changed"
        );
        Self {
            field: Some("stock".into()),
            ..Self::new(StatusCode::CONFLICT, "not_enough_unsold", detail)
        }
    }

    pub(crate) fn nothing_left() -> Self {
        let detail =
            "stock: buyers were faster, and none of the units that should go could be taken back";
        Self {
            field: Some("stock".into()),
            ..Self::new(StatusCode::CONFLICT, "not_enough_unsold", detail)
        }
    }

    pub(crate) fn take_back_open() -> Self {
        let detail = "units are being taken back, and until they have left the stock is not known; nothing was changed, look again";
        Self {
            retry_after: Some(1),
            ..Self::new(StatusCode::CONFLICT, "take_back_open", detail)
        }
    }

    pub(crate) fn item_not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "item_not_found",
            "there is no such item",
        )
    }

    pub(crate) fn order_not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "order_not_found",
            "there is no such order, or it is somebody else's",
        )
    }

    pub(crate) fn no_such_path() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "there is nothing at this path; /docs lists what there is",
        )
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "this path does not take this method; /docs lists what it takes",
        )
    }

    pub(crate) fn item_exists() -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "item_exists",
            "another item has this id; nothing was changed",
        )
    }

    fn sold_out() -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "sold_out",
            "nothing is left for this order; nothing was taken",
        )
    }

    pub(crate) fn buyer_limit_reached() -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "buyer_limit_reached",
            "the buyer would hold more units than one buyer may; nothing was taken",
        )
    }

    pub(crate) fn not_open(state: String, opens_at: Option<Timestamp>) -> Self {
        let detail = match (&*state, opens_at) {
            ("open", Some(opens_at)) if opens_at > Timestamp::now() => {
                format!("the sale opens at {opens_at}")
            }
            ("open", _) => "the sale is over".into(),
            (state, _) => format!("the item is {state}"),
        };
        let problem = Self::new(StatusCode::CONFLICT, "not_open", detail);
        Self {
            state: Some(state),
            opens_at: Some(opens_at),
            ..problem
        }
    }

    pub(crate) fn key_reused(quantity: domain::Quantity) -> Self {
        let detail = format!(
            "this key stands for an order of quantity {quantity}; a new order needs a new key"
        );
        let problem = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key_reused",
            detail,
        );
        Self {
            field: Some("Idempotency-Key".into()),
            ..problem
        }
    }

    pub(crate) fn stock_key_reused() -> Self {
        let detail = "this key stands for another change of the item's stock, and a new change needs a new key; nothing was changed";
        Self {
            field: Some("Idempotency-Key".into()),
            ..Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency_key_reused",
                detail,
            )
        }
    }

    pub(crate) fn outcome_unknown() -> Self {
        let detail = "the order may or may not have been placed; the same request with the same Idempotency-Key tells";
        Self {
            retry_after: Some(1),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "outcome_unknown", detail)
        }
    }

    /// A step of an order, or a change of an item.
    fn change_unknown() -> Self {
        let detail = "the change may or may not have been made; the same request tells";
        Self {
            detail: detail.into(),
            ..Self::outcome_unknown()
        }
    }

    pub(crate) fn unavailable() -> Self {
        let detail = "a store that this needs does not answer; the same request may be made again";
        Self {
            retry_after: Some(1),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
        }
    }

    pub(crate) fn timed_out() -> Self {
        let detail = "the request was not complete in time";
        Self {
            retry_after: Some(1),
            ..Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", detail)
        }
    }

    pub(crate) fn too_large() -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "payload_too_large",
            "the body is larger than any valid one",
        )
    }

    pub(crate) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "this is a defect of the service, and has been logged",
        )
    }

    /// A failure of the engine while an order was being placed: units may have been taken.
    pub(crate) fn of_order(error: &EngineError) -> Self {
        // An outage is one warning (`Outage`), not one for each of its orders.
        tracing::debug!(
            error = error as &dyn std::error::Error,
            "the outcome of an order is unknown"
        );
        Self::outcome_unknown()
    }
}

impl Problem {
    /// A failure while a payment was taken in: it may have been.
    pub(crate) fn of_payment(error: &EngineError) -> Self {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "a payment could not be taken in, or nobody knows whether it was"
        );
        let detail = "the payment may or may not have been taken in; report it again";
        Self {
            detail: detail.into(),
            ..Self::outcome_unknown()
        }
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        Self::invalid(invalid.field, format_args!("expected {}", invalid.expected))
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        if let EngineError::Ledger(refusal) = &error
            && !refusal.is_retryable()
        {
            // It would fail again: whoever let the values through has to be mended.
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the ledger does not take, or does not understand, what it was given"
            );
            return Self::internal();
        }
        tracing::warn!(error = &error as &dyn std::error::Error, "a store failed");
        if let EngineError::OutcomeUnknown(_) = error {
            return Self::change_unknown();
        }
        Self::unavailable()
    }
}

const TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The answer to most requests of a sale, written once.
pub(crate) fn sold_out() -> Response {
    static BODY: LazyLock<Bytes> = LazyLock::new(|| {
        serde_json::to_vec(&Problem::sold_out())
            .unwrap_or_default()
            .into()
    });
    (
        StatusCode::CONFLICT,
        [(header::CONTENT_TYPE, TYPE)],
        BODY.clone(),
    )
        .into_response()
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (self.status, [(header::CONTENT_TYPE, TYPE)], body).into_response();
        if let Some(seconds) = self.retry_after {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
