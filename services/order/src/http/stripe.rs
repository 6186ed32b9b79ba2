//! The handler for webhooks of Stripe, so that a shop need not translate them.
//!
//! Stripe names the order in the metadata `stockade_order`, which the shop sets when it creates the
//! Checkout session (`payment_intent_data.metadata` too) or the PaymentIntent. Events without it
//! belong to something else that the shop sells, and are ignored.
//!
//! Stripe repeats an event until it gets a 2xx, for up to three days. So the answer is 200 whenever a
//! repeat would change nothing: also for money that must be returned, which is in the journal then.

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use domain::{OrderId, PaymentId};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{App, Problem, body, signature::PaymentKey};
use crate::engine::{Ended, Paid, Payment};

/// Name of the header.
const SIGNATURE: &str = "Stripe-Signature";
/// The field of the metadata that names the order.
const ORDER: &str = "stockade_order";
/// Events have up to some 30 KiB.
const BODY_BYTES: usize = 256 * 1024;

/// An event of Stripe. It has many more fields, and gets more.
#[derive(Deserialize, ToSchema)]
pub(crate) struct StripeEvent {
    /// Such as `checkout.session.completed`.
    #[serde(rename = "type")]
    #[schema(example = "checkout.session.completed")]
    kind: String,
    /// What the event is about.
    data: StripeData,
}

#[derive(Deserialize, ToSchema)]
struct StripeData {
    /// A Checkout session, PaymentIntent or charge.
    #[schema(value_type = Object)]
    object: Value,
}

/// What became of an event.
#[derive(Serialize, ToSchema)]
pub(crate) struct StripeResult {
    /// `confirmed`, `refund_due`, `cancelled`, `refunded`, `ignored`; or why the money must be returned:
    /// `order_not_payable`, `already_paid`, `payment_already_used`, `amount_mismatch`,
    /// `currency_mismatch`.
    #[schema(example = "confirmed")]
    result: String,
    /// The order, if the event names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    order: Option<OrderId>,
    /// Why an event was ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
}

/// What an event asks for.
#[derive(Debug, PartialEq)]
enum Step {
    Pay(OrderId, Payment),
    Cancel(OrderId),
    Refund(OrderId, PaymentId),
    Ignore(&'static str),
}

/// Applies an event of Stripe: payments, expired Checkout sessions and refunds. The same event may
/// arrive any number of times, and in any order with others.
#[utoipa::path(post, path = "/v1/webhooks/stripe", operation_id = "receiveStripeEvent", tag = "payments", request_body = StripeEvent,
    params(("Stripe-Signature" = String, Header, description = "`t=SECONDS,v1=HEX`, as Stripe signs with the endpoint's secret")),
    responses((status = 200, description = "applied, now or before, or ignored", body = StripeResult),
        (status = 400, description = "`invalid_request`, `invalid_signature`", body = Problem),
        (status = 404, description = "`order_not_found`: Stripe sends the event again", body = Problem),
        (status = 413, description = "`payload_too_large`", body = Problem),
        (status = 503, description = "`outcome_unknown`, `unavailable`: Stripe sends the event again; `payments_not_configured`: the service has no secret of Stripe", body = Problem)))]
pub(crate) async fn receive(State(app): State<App>, request: Request) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    let raw = body::read(request, app.body_bytes.max(BODY_BYTES)).await?;
    PaymentKey::check_any(&app.payments.stripe, SIGNATURE, &headers, &raw)?;
    let event: StripeEvent = body::parse(&raw)?;
    let result = match event.step()? {
        Step::Pay(order, payment) => pay(&app, order, &payment).await?,
        Step::Cancel(order) => ended(app.engine.cancel(order, None).await?)?,
        Step::Refund(order, payment) => ended(app.engine.refund_payment(order, &payment).await?)?,
        Step::Ignore(reason) => StripeResult::ignored(None, reason),
    };
    Ok((StatusCode::OK, axum::Json(result)).into_response())
}

async fn pay(app: &App, order: OrderId, payment: &Payment) -> Result<StripeResult, Problem> {
    let paid = app.engine.pay(order, payment).await;
    let result = match paid.map_err(|error| Problem::of_payment(&error))? {
        Paid::Order(order) => order.state.as_str(),
        Paid::NotFound => return Err(Problem::order_not_found()),
        Paid::NotPayable(_) => "order_not_payable",
        Paid::Already => "already_paid",
        Paid::OtherOrder => "payment_already_used",
        Paid::OtherAmount { .. } | Paid::NoAmount { .. } => "amount_mismatch",
        Paid::OtherCurrency { .. } => "currency_mismatch",
    };
    Ok(StripeResult {
        result: result.into(),
        order: Some(order),
        detail: None,
    })
}

fn ended(ended: Ended) -> Result<StripeResult, Problem> {
    match ended {
        Ended::Order(order) => Ok(StripeResult {
            result: order.state.as_str().into(),
            order: Some(order.id),
            detail: None,
        }),
        Ended::NotFound => Err(Problem::order_not_found()),
        Ended::Refused(_) => Ok(StripeResult::ignored(
            None,
            "the order is in another state, or another payment has paid it",
        )),
    }
}

impl StripeResult {
    fn ignored(order: Option<OrderId>, reason: &'static str) -> Self {
        Self {
            result: "ignored".into(),
            order,
            detail: Some(reason),
        }
    }
}

impl StripeEvent {
    fn step(&self) -> Result<Step, Problem> {
        let object = &self.data.object;
        let Some(order) = object["metadata"].get(ORDER) else {
            return Ok(Step::Ignore("no stockade_order in the metadata"));
        };
        let order = order.as_str().and_then(|order| order.parse().ok());
        let order = order.map(OrderId::first).ok_or_else(|| {
            Problem::invalid(
                "data.object.metadata.stockade_order",
                "expected the id of an order",
            )
        })?;
        match self.kind.as_str() {
            "checkout.session.completed" | "checkout.session.async_payment_succeeded" => {
                if object["payment_status"] != "paid" {
                    return Ok(Step::Ignore("not paid yet: another event follows"));
                }
                Ok(Step::Pay(order, payment(object, "amount_total")?))
            }
            "payment_intent.succeeded" => Ok(Step::Pay(order, payment(object, "amount_received")?)),
            "checkout.session.expired" => Ok(Step::Cancel(order)),
            "charge.refunded" if object["refunded"] == true => {
                Ok(Step::Refund(order, payment_id(object)?))
            }
            "charge.refunded" => Ok(Step::Ignore("only a part was refunded")),
            _ => Ok(Step::Ignore("a type of event that changes no order")),
        }
    }
}

/// The payment that an object is about. A session and its PaymentIntent are the same payment.
fn payment(object: &Value, amount: &str) -> Result<Payment, Problem> {
    let field = |name: &str, expected: &str| {
        Problem::invalid(format!("data.object.{name}"), expected.to_owned())
    };
    let currency = object["currency"].as_str();
    Ok(Payment {
        id: payment_id(object)?,
        amount: Some(
            object[amount]
                .as_u64()
                .ok_or_else(|| field(amount, "expected an amount in the smallest unit"))?,
        ),
        currency: Some(
            currency
                .ok_or_else(|| field("currency", "expected an ISO 4217 code"))?
                .to_ascii_uppercase(),
        ),
    })
}

/// The PaymentIntent of an object, or the object itself if it is one or has none.
fn payment_id(object: &Value) -> Result<PaymentId, Problem> {
    let intent = &object["payment_intent"];
    let id = intent
        .as_str()
        .or(intent["id"].as_str())
        .or(object["id"].as_str());
    id.and_then(|id| PaymentId::new(id).ok())
        .ok_or_else(|| Problem::invalid("data.object.id", "expected the id of a payment"))
}
