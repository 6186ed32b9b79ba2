//! The handler for webhooks of Stripe, so that a shop need not translate them.
//!
//! Stripe names the order in the metadata `stockade_order`, or the cart in `stockade_cart`, which the shop sets when it creates the
//! Checkout session (`payment_intent_data.metadata` too) or the PaymentIntent. Events without it
//! belong to something else that the shop sells, and are ignored.
//!
//! Stripe repeats an event until it gets a 2xx, for up to three days. So the answer is 200 whenever a
//! repeat would change nothing: also for money that must be returned, which is in the journal then.

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use domain::{CartId, OrderId, PaymentId};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{App, Problem, body, signature::PaymentKey};
use crate::engine::{CartEnded, CartPaid, Ended, Paid, Payment};

/// Name of the header.
const SIGNATURE: &str = "Stripe-Signature";
/// The fields of the metadata that name the order, or the cart.
const ORDER: &str = "stockade_order";
const CART: &str = "stockade_cart";
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
    /// The cart, if the event names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    cart: Option<CartId>,
    /// Why an event was ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
}

/// What an event asks for.
#[derive(Debug, PartialEq)]
enum Step {
    Pay(Target, Payment),
    Cancel(Target),
    Refund(Target, PaymentId),
    Ignore(&'static str),
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Target {
    Order(OrderId),
    Cart(CartId),
}

/// Applies an event of Stripe: payments, expired Checkout sessions and refunds. The same event may
/// arrive any number of times, and in any order with others.
#[utoipa::path(post, path = "/v1/webhooks/stripe", operation_id = "receiveStripeEvent", tag = "payments", request_body = StripeEvent,
    params(("Stripe-Signature" = String, Header, description = "`t=SECONDS,v1=HEX`, as Stripe signs with the endpoint's secret")),
    responses((status = 200, description = "applied, now or before, or ignored", body = StripeResult),
        (status = 400, description = "`invalid_request`, `invalid_signature`", body = Problem),
        (status = 404, description = "`order_not_found`: Stripe sends the event again", body = Problem),
        (status = 413, description = "`payload_too_large`", body = Problem),
        (status = 503, description = "`outcome_unknown`, `unavailable`, `payment_awaited` (a refund came before its payment): Stripe sends the event again; `payments_not_configured`: the service has no secret of Stripe", body = Problem)))]
pub(crate) async fn receive(State(app): State<App>, request: Request) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    let raw = body::read(request, app.body_bytes.max(BODY_BYTES)).await?;
    PaymentKey::check_any(&app.payments.stripe, SIGNATURE, &headers, &raw)?;
    let event: StripeEvent = body::parse(&raw)?;
    let result = match event.step()? {
        Step::Pay(Target::Order(order), payment) => pay(&app, order, &payment).await?,
        Step::Pay(Target::Cart(cart), payment) => pay_cart(&app, cart, &payment).await?,
        Step::Cancel(Target::Order(order)) => ended(app.engine.cancel(order, None).await?)?,
        Step::Cancel(Target::Cart(cart)) => cart_ended(app.engine.cancel_cart(cart, None).await?)?,
        Step::Refund(Target::Order(order), payment) => refund(&app, order, &payment).await?,
        Step::Refund(Target::Cart(cart), payment) => refund_cart(&app, cart, &payment).await?,
        Step::Ignore(reason) => StripeResult::ignored(reason),
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
        Paid::InCart(_) => "order_in_cart",
        Paid::OtherOrder => "payment_already_used",
        Paid::OtherAmount { .. } | Paid::NoAmount { .. } => "amount_mismatch",
        Paid::OtherCurrency { .. } => "currency_mismatch",
    };
    Ok(StripeResult {
        order: Some(order),
        ..StripeResult::of(result)
    })
}

async fn pay_cart(app: &App, cart: CartId, payment: &Payment) -> Result<StripeResult, Problem> {
    let paid = app.engine.pay_cart(cart, payment).await;
    let result = match paid.map_err(|error| Problem::of_payment(&error))? {
        CartPaid::Cart(cart) => cart.state.as_str(),
        CartPaid::NotFound => return Err(Problem::cart_not_found()),
        CartPaid::NotPayable(_) => "cart_not_payable",
        CartPaid::Already => "already_paid",
        CartPaid::OtherOrder => "payment_already_used",
        CartPaid::OtherAmount { .. } | CartPaid::NoAmount { .. } => "amount_mismatch",
        CartPaid::OtherCurrency { .. } => "currency_mismatch",
    };
    Ok(StripeResult {
        cart: Some(cart),
        ..StripeResult::of(result)
    })
}

/// A refund that overtakes its payment is refused, so that it comes again after it.
async fn refund(app: &App, order: OrderId, payment: &PaymentId) -> Result<StripeResult, Problem> {
    let refunded = app.engine.refund_payment(order, payment).await?;
    if let Ended::Refused(state) = &refunded
        && app.engine.awaits_payment(order, payment).await?
    {
        return Err(Problem::payment_awaited(state));
    }
    ended(refunded)
}

async fn refund_cart(
    app: &App,
    cart: CartId,
    payment: &PaymentId,
) -> Result<StripeResult, Problem> {
    let refunded = app.engine.refund_cart_payment(cart, payment).await?;
    if let CartEnded::Refused(state) = &refunded
        && app.engine.cart_awaits_payment(cart, payment).await?
    {
        return Err(Problem::payment_awaited(state));
    }
    cart_ended(refunded)
}

fn ended(ended: Ended) -> Result<StripeResult, Problem> {
    match ended {
        Ended::Order(order) => Ok(StripeResult {
            order: Some(order.id),
            ..StripeResult::of(order.state.as_str())
        }),
        Ended::NotFound => Err(Problem::order_not_found()),
        Ended::InCart(_) => Ok(StripeResult::ignored(
            "the order is a line of a cart: name the cart in stockade_cart",
        )),
        Ended::Refused(_) => Ok(StripeResult::ignored(
            "the order is in another state, or another payment has paid it",
        )),
    }
}

fn cart_ended(ended: CartEnded) -> Result<StripeResult, Problem> {
    match ended {
        CartEnded::Cart(cart) => Ok(StripeResult {
            cart: Some(cart.id),
            ..StripeResult::of(cart.state.as_str())
        }),
        CartEnded::NotFound => Err(Problem::cart_not_found()),
        CartEnded::Refused(_) => Ok(StripeResult::ignored(
            "the cart is in another state, or another payment has paid it",
        )),
    }
}

impl StripeResult {
    fn of(result: &str) -> Self {
        Self {
            result: result.into(),
            order: None,
            cart: None,
            detail: None,
        }
    }

    fn ignored(reason: &'static str) -> Self {
        Self {
            detail: Some(reason),
            ..Self::of("ignored")
        }
    }
}

impl StripeEvent {
    fn step(&self) -> Result<Step, Problem> {
        let object = &self.data.object;
        let Some(target) = target(&object["metadata"])? else {
            return Ok(Step::Ignore(
                "no stockade_order and no stockade_cart in the metadata",
            ));
        };
        match self.kind.as_str() {
            "checkout.session.completed" | "checkout.session.async_payment_succeeded" => {
                if object["payment_status"] != "paid" {
                    return Ok(Step::Ignore("not paid yet: another event follows"));
                }
                Ok(Step::Pay(target, payment(object, "amount_total")?))
            }
            "payment_intent.succeeded" => {
                Ok(Step::Pay(target, payment(object, "amount_received")?))
            }
            "checkout.session.expired" => Ok(Step::Cancel(target)),
            "charge.refunded" if object["refunded"] == true => {
                Ok(Step::Refund(target, payment_id(object)?))
            }
            "charge.refunded" => Ok(Step::Ignore("only a part was refunded")),
            _ => Ok(Step::Ignore("a type of event that changes no order")),
        }
    }
}

/// The order or the cart that the metadata names.
fn target(metadata: &Value) -> Result<Option<Target>, Problem> {
    let invalid = |field: &str, expected: &'static str| {
        Problem::invalid(format!("data.object.metadata.{field}"), expected)
    };
    match (metadata.get(ORDER), metadata.get(CART)) {
        (None, None) => Ok(None),
        (Some(order), None) => {
            let order = order.as_str().and_then(|order| order.parse().ok());
            let order = order.map(OrderId::first).map(Target::Order);
            order
                .map(Some)
                .ok_or_else(|| invalid(ORDER, "expected the id of an order"))
        }
        (None, Some(cart)) => {
            let cart = cart.as_str().and_then(|cart| cart.parse().ok());
            cart.map(Target::Cart)
                .map(Some)
                .ok_or_else(|| invalid(CART, "expected the id of a cart"))
        }
        (Some(_), Some(_)) => Err(invalid(CART, "expected no stockade_order besides")),
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
