//! The handler for webhooks of Stripe, so that a shop need not translate them.
//!
//! Stripe names the order in the metadata `stockade_order`, or the cart in `stockade_cart`, which
//! the shop sets when it creates the Checkout session (`payment_intent_data.metadata` too) or the
//! PaymentIntent. Events without it belong to something else that the shop sells, and are ignored.
//!
//! Stripe repeats an event until it gets a 2xx, for up to three days, and disables an endpoint that
//! refuses events for long. So the answer is 200 whenever a repeat would change nothing: for money
//! that must be returned, which is in the journal then, and for whatever this service has no use
//! for, with the reason.

mod refunds;

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use domain::{CartId, OrderId, PaymentId, SessionId};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    App, Problem, body,
    outcomes::{self, Named},
};
use crate::engine::{Ended, EngineError, Paid, Payable, Payment, SessionEnd};
use refunds::Refund;

/// The fields of the metadata that name the order, or the cart.
const ORDER: &str = "stockade_order";
const CART: &str = "stockade_cart";
/// Events have up to some 30 KiB.
const BODY_BYTES: usize = 256 * 1024;
/// How old an event is when a repeat finds no order that this one has not found. An order is in a store
/// before its buyer knows its id, but a store that has just failed over may lag behind.
const APPEARS_WITHIN_SECONDS: i64 = 3600;

/// An event of Stripe. It has many more fields, and gets more.
#[derive(Deserialize, ToSchema)]
pub(crate) struct StripeEvent {
    /// Such as `checkout.session.completed`.
    #[serde(rename = "type")]
    #[schema(example = "checkout.session.completed")]
    kind: String,
    /// When it happened, in seconds since 1970. The repeats of an event have the same.
    #[schema(example = 1_686_089_970)]
    created: Option<i64>,
    /// What the event is about.
    data: StripeData,
}

#[derive(Deserialize, ToSchema)]
struct StripeData {
    /// A Checkout session, PaymentIntent, charge or refund.
    #[schema(value_type = Object)]
    object: Value,
}

/// What became of an event.
#[derive(Serialize, ToSchema)]
pub(crate) struct StripeResult {
    /// `confirmed`, `refund_due`, `cancelled`, `refunded`, `ignored`; or why the money must be
    /// returned: `order_not_payable`, `cart_not_payable`, `order_in_cart`, `already_paid`,
    /// `amount_mismatch`, `currency_mismatch`; or `payment_already_used`: it was reported for
    /// something else before, and is due only if it has not paid that. Of refunds:
    /// `payment_refunded`, a payment that has paid nothing was returned; `payment_returned`, its
    /// report came after that; `refund_failed`, money is due again; `noted`.
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
    Pay(Payable, Payment),
    EndSession(Payable, SessionId),
    Refund(Refund),
    Ignore(&'static str),
}

/// Applies an event of Stripe: payments, Checkout sessions that end unpaid, and refunds. The same event
/// may arrive any number of times, and in any order with others.
#[utoipa::path(post, path = "/v1/webhooks/stripe", operation_id = "receiveStripeEvent", tag = "payments", request_body = StripeEvent,
    params(("Stripe-Signature" = String, Header, description = "`t=SECONDS,v1=HEX`, as Stripe signs with the endpoint's secret")),
    responses((status = 200, description = "applied, now or before, or ignored", body = StripeResult),
        (status = 400, description = "`invalid_request`: the body is no JSON; `invalid_signature`", body = Problem),
        (status = 404, description = "`order_not_found`, `cart_not_found`: the event is less than an hour old, and Stripe sends it again", body = Problem),
        (status = 503, description = "`outcome_unknown`, `unavailable`: Stripe sends the event again; `payments_not_configured`: the service has no secret of Stripe", body = Problem)))]
pub(crate) async fn receive(State(app): State<App>, request: Request) -> Result<Response, Problem> {
    let stripe = app.payments.stripe();
    let raw = stripe.read(request, app.body_bytes.max(BODY_BYTES)).await?;
    let result = match StripeEvent::read(body::parse(&raw)?) {
        Ok(event) => event.apply(&app).await?,
        Err(reason) => StripeResult::ignored(reason),
    };
    Ok((StatusCode::OK, axum::Json(result)).into_response())
}

async fn apply(app: &App, step: Step) -> Result<StripeResult, Problem> {
    match step {
        Step::Pay(of @ Payable::Order(order), payment) => {
            paid(app.engine.pay(order, &payment).await, of)
        }
        Step::Pay(of @ Payable::Cart(cart), payment) => {
            paid(app.engine.pay_cart(cart, &payment).await, of)
        }
        Step::EndSession(Payable::Order(order), session) => session_end(
            app.engine.end_session(order, &session).await?,
            "the order is in another state, or another payment has paid it",
        ),
        Step::EndSession(Payable::Cart(cart), session) => session_end(
            app.engine.end_cart_session(cart, &session).await?,
            "the cart is in another state, or another payment has paid it",
        ),
        Step::Refund(refund) => refunds::apply(app, refund).await,
        Step::Ignore(reason) => Ok(StripeResult::ignored(reason)),
    }
}

/// A repeat of the event may find what this one has not found. Any other reason stays.
fn paid<T: Named>(
    paid: Result<Paid<T>, EngineError>,
    of: Payable,
) -> Result<StripeResult, Problem> {
    match outcomes::paid(paid.map_err(|error| Problem::of_payment(&error))?) {
        Ok(paid) => Ok(StripeResult::of(&paid)),
        Err(problem) if problem.is_not_found() => Err(problem),
        Err(problem) => Ok(StripeResult::about(of, problem.code())),
    }
}

/// Only the end of the session that the order has named last may cancel it: its buyer may be paying in
/// another one. `refused`: because of its state.
fn session_end<T: Named>(
    end: SessionEnd<T>,
    refused: &'static str,
) -> Result<StripeResult, Problem> {
    let reason = match end {
        SessionEnd::Ended(Ended::Done(ended)) => return Ok(StripeResult::of(&ended)),
        SessionEnd::Ended(Ended::NotFound) => return Err(T::not_found()),
        SessionEnd::Ended(Ended::InCart(_)) => {
            "the order is a line of a cart: name the cart in stockade_cart"
        }
        SessionEnd::Ended(Ended::Refused(_)) => refused,
        SessionEnd::Unnamed => "no session was named to the order or cart: its hold ends by itself",
        SessionEnd::Superseded => "another session was named to the order or cart since",
    };
    Ok(StripeResult::ignored(reason))
}

/// An event that names an order or cart, and cannot be used.
fn unusable(kind: &str, reason: &'static str) -> StripeResult {
    tracing::warn!(
        event = kind,
        reason,
        "an event of Stripe names an order or cart and cannot be used"
    );
    StripeResult::ignored(reason)
}

impl StripeResult {
    fn about(of: Payable, result: &str) -> Self {
        let (order, cart) = match of {
            Payable::Order(order) => (Some(order), None),
            Payable::Cart(cart) => (None, Some(cart)),
        };
        Self {
            result: result.into(),
            order,
            cart,
            detail: None,
        }
    }

    fn of(named: &impl Named) -> Self {
        Self::about(named.payable(), named.state())
    }

    fn ignored(reason: &'static str) -> Self {
        Self {
            result: "ignored".into(),
            order: None,
            cart: None,
            detail: Some(reason),
        }
    }
}

impl StripeEvent {
    /// Reads an event. An error says why it is none that this service has a use for.
    fn read(event: Value) -> Result<Self, &'static str> {
        // Events of Stripe's second API name an object that would have to be fetched, and have
        // none.
        let version = event["object"].as_str();
        if version.is_some_and(|object| object.starts_with("v2.")) {
            return Err("a thin event (v2) has no data.object: choose snapshot events");
        }
        serde_json::from_value(event).map_err(|_| "no event with a type and a data.object")
    }

    async fn apply(&self, app: &App) -> Result<StripeResult, Problem> {
        let step = match self.step() {
            Ok(step) => step,
            Err(reason) => return Ok(unusable(&self.kind, reason)),
        };
        match apply(app, step).await {
            Err(problem) if problem.is_not_found() && !self.is_new(Timestamp::now()) => {
                tracing::warn!(
                    event = self.kind,
                    metadata = %self.data.object["metadata"],
                    "an event of Stripe names an order or cart that does not exist"
                );
                Ok(StripeResult::ignored("there is no such order or cart"))
            }
            applied => applied,
        }
    }

    /// Whether a repeat may find an order that is not found now.
    fn is_new(&self, now: Timestamp) -> bool {
        self.created
            .is_some_and(|created| now.as_second().saturating_sub(created) < APPEARS_WITHIN_SECONDS)
    }

    /// What the event asks for. An error says why what it names cannot be used: a repeat of the event
    /// says the same.
    fn step(&self) -> Result<Step, &'static str> {
        if refunds::are_of(&self.kind) {
            return refunds::step(self).map(Step::Refund);
        }
        let object = &self.data.object;
        let Some(target) = target(&object["metadata"])? else {
            return Ok(Step::Ignore(
                "no stockade_order and no stockade_cart in the metadata",
            ));
        };
        match self.kind.as_str() {
            "checkout.session.completed" | "checkout.session.async_payment_succeeded" => {
                completed_session(target, object)
            }
            "payment_intent.succeeded" => {
                Ok(Step::Pay(target, payment(object, "amount_received")?))
            }
            "checkout.session.expired" | "checkout.session.async_payment_failed" => {
                Ok(Step::EndSession(target, session_id(object)?))
            }
            _ => Ok(Step::Ignore("a type of event that changes no order")),
        }
    }
}

/// What a Checkout session that the buyer has completed asks for.
fn completed_session(target: Payable, object: &Value) -> Result<Step, &'static str> {
    let step = match object["payment_status"].as_str() {
        Some("paid") => Step::Pay(target, payment(object, "amount_total")?),
        // A free item, or a discount of everything. There is no PaymentIntent, and no event
        // follows.
        Some("no_payment_required") if object["amount_total"] == 0 => {
            Step::Pay(target, payment_of_nothing(object)?)
        }
        Some("no_payment_required") => {
            Step::Ignore("no payment was required, and the session costs something")
        }
        _ => Step::Ignore("not paid yet: another event follows"),
    };
    Ok(step)
}

/// The order or the cart that the metadata names.
fn target(metadata: &Value) -> Result<Option<Payable>, &'static str> {
    match (metadata.get(ORDER), metadata.get(CART)) {
        (None, None) => Ok(None),
        (Some(order), None) => {
            let order = order.as_str().and_then(|order| order.parse().ok());
            let order = order.map(OrderId::first).map(Payable::Order);
            order
                .map(Some)
                .ok_or("stockade_order in the metadata is not the id of an order")
        }
        (None, Some(cart)) => {
            let cart = cart.as_str().and_then(|cart| cart.parse().ok());
            cart.map(Payable::Cart)
                .map(Some)
                .ok_or("stockade_cart in the metadata is not the id of a cart")
        }
        (Some(_), Some(_)) => {
            Err("the metadata has both stockade_order and stockade_cart: set one of them")
        }
    }
}

/// The payment that an object is about. A session and its PaymentIntent are the same payment.
fn payment(object: &Value, amount: &str) -> Result<Payment, &'static str> {
    let currency = object["currency"].as_str();
    Ok(Payment {
        id: payment_id(object)?,
        amount: Some(
            object[amount]
                .as_u64()
                .ok_or("the object has no amount in the currency's smallest unit")?,
        ),
        currency: Some(
            currency
                .ok_or("the object has no currency")?
                .to_ascii_uppercase(),
        ),
    })
}

/// The payment of a session in which nothing was to be paid. Nothing is the same in every currency.
fn payment_of_nothing(object: &Value) -> Result<Payment, &'static str> {
    Ok(Payment {
        id: payment_id(object)?,
        amount: Some(0),
        currency: None,
    })
}

/// The PaymentIntent of an object, or the object itself if it is one or has none.
fn payment_id(object: &Value) -> Result<PaymentId, &'static str> {
    let intent = &object["payment_intent"];
    let id = intent
        .as_str()
        .or(intent["id"].as_str())
        .or(object["id"].as_str());
    id.and_then(|id| PaymentId::new(id).ok())
        .ok_or("the object has no id of a payment")
}

fn session_id(object: &Value) -> Result<SessionId, &'static str> {
    let id = object["id"].as_str();
    id.and_then(|id| SessionId::new(id).ok())
        .ok_or("the object has no id of a session")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::{APPEARS_WITHIN_SECONDS, Step, StripeEvent};

    const ORDER: &str = "9ee2ddee-53dc-8690-8a2b-6181b5fbc615";

    fn event(kind: &str, object: &Value) -> StripeEvent {
        StripeEvent::read(json!({ "type": kind, "data": { "object": object } })).unwrap()
    }

    #[test]
    fn what_is_no_event_is_told_from_a_thin_one() {
        let thin = json!({ "object": "v2.core.event", "type": "v1.billing.meter.no_meter_found",
            "created": "2026-11-25T10:00:00.000Z", "related_object": { "id": "mtr_1" } });
        let why = |event: Value| StripeEvent::read(event).map(|_| ()).unwrap_err();
        assert!(why(thin).contains("thin"));
        let others = [
            json!(null),
            json!([]),
            json!("event"),
            json!({}),
            json!({ "type": "charge.refunded" }),
            json!({ "type": "charge.refunded", "data": {} }),
            json!({ "type": 7, "data": { "object": {} } }),
        ];
        for other in others {
            assert_eq!(
                why(other.clone()),
                "no event with a type and a data.object",
                "{other}"
            );
        }
    }

    #[test]
    fn what_names_an_order_in_an_unusable_way_has_a_reason() {
        let table = [
            (
                json!({ "metadata": { "stockade_order": "nonsense" } }),
                "not the id of an order",
            ),
            (
                json!({ "metadata": { "stockade_order": 7 } }),
                "not the id of an order",
            ),
            (
                json!({ "metadata": { "stockade_cart": "nonsense" } }),
                "not the id of a cart",
            ),
            (
                json!({ "metadata": { "stockade_order": ORDER, "stockade_cart": ORDER } }),
                "both",
            ),
        ];
        for (object, why) in table {
            for kind in ["payment_intent.succeeded", "checkout.session.expired"] {
                let reason = event(kind, &object).step().unwrap_err();
                assert!(reason.contains(why), "{kind} {object}: {reason}");
            }
        }
        let whole = json!({ "id": "pi_1", "amount_received": 5, "currency": "eur", "metadata": { "stockade_order": ORDER } });
        assert!(matches!(
            event("payment_intent.succeeded", &whole).step(),
            Ok(Step::Pay(..))
        ));
        for field in ["id", "amount_received", "currency"] {
            for wrong in [json!(null), json!(-1), json!(1.5)] {
                let mut object = whole.clone();
                object[field] = wrong;
                let reason = event("payment_intent.succeeded", &object).step();
                assert!(reason.is_err(), "{object}");
            }
        }
        for kind in ["customer.created", "payment_intent.payment_failed"] {
            assert!(
                matches!(event(kind, &whole).step(), Ok(Step::Ignore(_))),
                "{kind}"
            );
        }
    }

    #[test]
    fn an_unknown_order_may_appear_for_an_hour() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let created = |created: Value| {
            let event = json!({ "type": "x", "created": created, "data": { "object": {} } });
            StripeEvent::read(event).unwrap().is_new(now)
        };
        let ago = |seconds: i64| json!(now.as_second() - seconds);
        assert!(created(ago(0)) && created(ago(-5)) && created(ago(APPEARS_WITHIN_SECONDS - 1)));
        assert!(!created(ago(APPEARS_WITHIN_SECONDS)));
        assert!(!created(json!(i64::MIN)));
        assert!(!created(json!(null)), "it could not be repeated for ever");
    }
}
