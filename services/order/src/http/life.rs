//! Handlers that pay, cancel and refund orders.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use domain::{Invalid, Order, OrderId, PaymentId};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    App, Problem,
    access::{AdminWith, BuyerOrAdmin, Name, OrdersPlace, RefundsWrite},
    body::{self, Raw, Whole},
    orders::OrderBody,
};
use crate::engine::{Ended, Paid, Payment};

/// Upper bound of the price of an order.
const AMOUNT_MAX: u64 = 1_000_000_000_000_000_000;

/// A payment that the provider reports.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPayment {
    /// The provider's id of the payment: 1 to 255 visible ASCII characters.
    #[schema(value_type = String, example = "pay_123")]
    payment: String,
    /// Amount paid in the currency's smallest unit: the price of the order. Required if it has one.
    #[schema(value_type = Option<u64>)]
    amount_cents: Option<Whole<0, AMOUNT_MAX>>,
    /// The order that was paid: the order of the path, which the signature does not cover.
    #[schema(example = "9ee2ddee-53dc-8690-8a2b-6181b5fbc615")]
    order: String,
}

impl NewPayment {
    fn is_of(&self, order: OrderId) -> bool {
        self.order.parse().map(OrderId::first) == Ok(order)
    }

    fn into_payment(self) -> Result<Payment, Invalid> {
        Ok(Payment {
            id: PaymentId::new(&self.payment)?,
            amount_cents: self.amount_cents.map(|amount| amount.0),
            currency: None,
        })
    }
}

fn order_id(text: &str) -> Result<OrderId, Problem> {
    text.parse()
        .map(OrderId::first)
        .map_err(|_| Problem::order_not_found())
}

fn shown(order: &Order) -> Response {
    (StatusCode::OK, axum::Json(OrderBody::of(order))).into_response()
}

/// Applies a payment, for the provider's webhook. The same payment may be reported any number of
/// times.
#[utoipa::path(post, path = "/v1/orders/{order}/payment", tag = "payments", request_body = NewPayment,
    params(("order" = String, Path, description = "the order's id"),
        ("Stockade-Signature" = String, Header,
            description = "`t=SECONDS,v1=HEX`: seconds since 1970, and the HMAC-SHA256 of these seconds, a dot and the body, with the payment secret")),
    responses((status = 200, description = "`confirmed`; or `refund_due`: the hold had expired and no units could be reacquired, so the money must be returned", body = OrderBody),
        (status = 400, description = "`invalid_request`", body = Problem), (status = 401, description = "`invalid_signature`", body = Problem),
        (status = 404, description = "`order_not_found`", body = Problem),
        (status = 409, description = "`order_not_payable`, `already_paid`: the money must be returned; `payment_already_used`: the payment was reported for another order", body = Problem),
        (status = 422, description = "`amount_mismatch`: the journal has the payment; `order_mismatch`: the body names another order than the path", body = Problem),
        (status = 503, description = "`outcome_unknown`, `unavailable`: report it again", body = Problem)))]
pub(crate) async fn pay(
    State(app): State<App>,
    Name(order): Name,
    headers: HeaderMap,
    Raw(raw): Raw,
) -> Result<Response, Problem> {
    let key = app
        .payments
        .provider
        .as_ref()
        .ok_or_else(Problem::no_payment_secret)?;
    key.check(&headers, &raw)?;
    let (payment, order) = (body::parse::<NewPayment>(&raw)?, order_id(&order)?);
    if !payment.is_of(order) {
        return Err(Problem::other_order());
    }
    match app
        .engine
        .pay(order, &payment.into_payment()?)
        .await
        .map_err(|error| Problem::of_payment(&error))?
    {
        Paid::Order(order) => Ok(shown(&order)),
        Paid::NotFound => Err(Problem::order_not_found()),
        Paid::NotPayable(state) => Err(Problem::not_payable(state)),
        Paid::Already => Err(Problem::already_paid()),
        Paid::OtherOrder => Err(Problem::payment_of_another_order()),
        Paid::OtherAmount { expected } => Err(Problem::other_amount(expected)),
        Paid::OtherCurrency { expected } => Err(Problem::other_currency(&expected)),
        Paid::NoAmount { expected } => Err(Problem::no_amount(expected)),
    }
}

/// Cancels a held order and releases its units immediately.
#[utoipa::path(delete, path = "/v1/orders/{order}", tag = "buyers", params(("order" = String, Path, description = "the order's id")),
    responses((status = 200, description = "cancelled, now or before", body = OrderBody), (status = 401, description = "`unauthorized`", body = Problem), (status = 403, description = "`forbidden`: an admin without the scope `orders:place`", body = Problem),
        (status = 404, description = "`order_not_found`: also for an order of another buyer", body = Problem),
        (status = 409, description = "`order_not_cancellable`: it is paid or has ended", body = Problem),
        (status = 503, description = "`outcome_unknown`, `unavailable`: the same request tells", body = Problem)),
    security(("buyer" = []), ("admin" = [])))]
pub(crate) async fn cancel(
    State(app): State<App>,
    who: BuyerOrAdmin<OrdersPlace>,
    Name(order): Name,
) -> Result<Response, Problem> {
    match app
        .engine
        .cancel(order_id(&order)?, who.buyer.as_ref())
        .await?
    {
        Ended::Order(order) => Ok(shown(&order)),
        Ended::NotFound => Err(Problem::order_not_found()),
        Ended::Refused(state) => Err(Problem::not_cancellable(state)),
    }
}

/// Records that the money of an order was returned, and releases its units, if it has any,
/// immediately.
#[utoipa::path(post, path = "/v1/orders/{order}/refund", tag = "admins", params(("order" = String, Path, description = "the order's id")),
    responses((status = 200, description = "refunded, now or before", body = OrderBody), (status = 401, description = "`unauthorized`", body = Problem), (status = 403, description = "`forbidden`: a buyer, or an admin without the scope `refunds:write`", body = Problem),
        (status = 404, description = "`order_not_found`", body = Problem),
        (status = 409, description = "`order_not_refundable`: it is not paid", body = Problem),
        (status = 503, description = "`outcome_unknown`, `unavailable`: the same request tells", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn refund(
    State(app): State<App>,
    _: AdminWith<RefundsWrite>,
    Name(order): Name,
) -> Result<Response, Problem> {
    match app.engine.refund(order_id(&order)?).await? {
        Ended::Order(order) => Ok(shown(&order)),
        Ended::NotFound => Err(Problem::order_not_found()),
        Ended::Refused(state) => Err(Problem::not_refundable(state)),
    }
}
