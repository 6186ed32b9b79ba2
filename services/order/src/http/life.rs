//! Handlers that extend, pay, cancel and refund orders.

use axum::{
    extract::{Request, State},
    response::Response,
};
use domain::{Cart, OrderId, PaymentId, SessionId};
use serde::{Deserialize, de::DeserializeOwned};
use utoipa::ToSchema;

use super::{
    App, Problem,
    access::{AdminWith, BuyerOrAdmin, Name, OrdersPlace, RefundsWrite},
    body::{self, Json, Whole},
    currency,
    items::YEAR_SECONDS,
    orders::{OrderBody, shown},
    outcomes::{ended, paid},
};
use crate::engine::{Extended, HoldChange, Payment};

/// Upper bound of the price of an order.
pub(crate) const AMOUNT_MAX: u64 = Cart::AMOUNT_MAX;

/// A payment that the provider reports.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPayment {
    /// The provider's id of the payment, the same in a repeat: 1 to 255 visible ASCII characters.
    #[schema(value_type = String, pattern = "^[!-~]{1,255}$", example = "pay_123")]
    payment: String,
    /// Amount paid in the currency's smallest unit: the `amount` of the order. Required if it has one.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_000_u64)]
    amount: Option<Whole<0, AMOUNT_MAX>>,
    /// The currency that it was paid in (ISO 4217, three capital letters): that of the order. Default:
    /// it is not checked.
    #[schema(pattern = "^[A-Z]{3}$", example = "EUR")]
    currency: Option<String>,
    /// The order that was paid: the order of the path, which the signature does not cover.
    #[schema(example = "9ee2ddee-53dc-8690-8a2b-6181b5fbc615")]
    order: String,
}

impl NewPayment {
    fn is_of(&self, order: OrderId) -> bool {
        self.order.parse().map(OrderId::first) == Ok(order)
    }

    fn into_payment(self) -> Result<Payment, Problem> {
        payment(&self.payment, self.amount, self.currency)
    }
}

/// The payment that a report of an order or a cart describes.
pub(super) fn payment(
    id: &str,
    amount: Option<Whole<0, AMOUNT_MAX>>,
    currency: Option<String>,
) -> Result<Payment, Problem> {
    Ok(Payment {
        id: PaymentId::new(id)?,
        amount: amount.map(|amount| amount.0),
        currency: currency.map(currency::checked).transpose()?,
    })
}

/// What the provider reports, if it is signed.
pub(super) async fn reported<T: DeserializeOwned>(
    app: &App,
    request: Request,
) -> Result<T, Problem> {
    let provider = app.payments.provider();
    body::parse(&provider.read(request, app.body_bytes).await?)
}

pub(super) fn order_id(text: &str) -> Result<OrderId, Problem> {
    text.parse()
        .map(OrderId::first)
        .map_err(|_| Problem::order_not_found())
}

/// Applies a payment, for the provider's webhook. The same payment may be reported any number of
/// times.
#[utoipa::path(post, path = "/v1/orders/{order}/payment", operation_id = "payOrder", tag = "payments", request_body = NewPayment,
    params(("order" = String, Path, description = "the order's id"),
        ("Stockade-Signature" = String, Header,
            description = "`t=SECONDS,v1=HEX`: seconds since 1970, and the HMAC-SHA256 of these seconds, a dot and the body, with the payment secret")),
    responses((status = 200, description = "`confirmed`; or `refund_due`: the hold had expired and no units could be reacquired, so the money must be returned", body = OrderBody),
        (status = 400, description = "`invalid_request`, `invalid_signature`", body = Problem),
        (status = 404, description = "`order_not_found`", body = Problem),
        (status = 409, description = "`order_not_payable`, `already_paid`, `order_in_cart`: the money must be returned; `payment_already_used`: the payment was reported for another order; `payment_returned`: its money was returned before", body = Problem),
        (status = 422, description = "`amount_mismatch`, `currency_mismatch`: the journal has the payment, unless its amount is missing or 0; `order_mismatch`: the body names another order than the path", body = Problem),
        (status = 503, description = "`outcome_unknown`, `unavailable`: report it again; `payments_not_configured`: the service has no payment secret", body = Problem)))]
pub(crate) async fn pay(
    State(app): State<App>,
    Name(order): Name,
    request: Request,
) -> Result<Response, Problem> {
    let payment = reported::<NewPayment>(&app, request).await?;
    let order = order_id(&order)?;
    if !payment.is_of(order) {
        return Err(Problem::other_order());
    }
    let result = app.engine.pay(order, &payment.into_payment()?).await;
    let result = result.map_err(|error| Problem::of_payment(&error))?;
    shown(&app, paid(result)?, true).await
}

/// How long a hold shall be, and in which checkout session the order is paid: one of them, or both.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewHold {
    /// The length of the whole hold in seconds, counted from `created_at` of the order. At most the
    /// item's `max_hold_seconds`. Required without `session`.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 31_536_000, example = 1800)]
    seconds: Option<Whole<1, YEAR_SECONDS>>,
    /// The provider's id of the checkout session in which the order is paid from now on: 1 to 255
    /// visible ASCII characters. The end of this one cancels the order, and that of no other.
    #[schema(value_type = Option<String>, pattern = "^[!-~]{1,255}$", example = "cs_test_123")]
    session: Option<String>,
}

/// The change that both kinds of holds ask for.
pub(crate) fn hold_change(
    seconds: Option<Whole<1, YEAR_SECONDS>>,
    session: Option<&str>,
) -> Result<HoldChange, Problem> {
    if seconds.is_none() && session.is_none() {
        let expected = "expected the seconds of the hold, or a session";
        return Err(Problem::invalid("seconds", expected));
    }
    Ok(HoldChange {
        seconds: seconds.map(|seconds| u32::try_from(seconds.0).unwrap_or(u32::MAX)),
        session: session.map(SessionId::new).transpose()?,
    })
}

/// Extends the hold of an order, up to the item's `max_hold_seconds`, and names the checkout session in
/// which it is paid. A hold never gets shorter, and a repeat of the request changes nothing.
#[utoipa::path(post, path = "/v1/orders/{order}/hold", operation_id = "extendHold", tag = "buyers", request_body = NewHold,
    params(("order" = String, Path, description = "the order's id")),
    responses(BuyerOrAdmin<OrdersPlace>, (status = 200, description = "the order; its hold ends `seconds` after `created_at`, or later", body = OrderBody), (status = 400, description = "`invalid_request`: also for more than the item's `max_hold_seconds`", body = Problem),
        (status = 404, description = "`order_not_found`: also for an order of another buyer", body = Problem),
        (status = 409, description = "`order_not_extendable`: it is paid or has ended; `order_in_cart`: the cart is extended as a whole", body = Problem),
        (status = 503, description = "`outcome_unknown`, `unavailable`: the same request tells", body = Problem)),
    security(("buyer" = []), ("admin" = [])))]
pub(crate) async fn extend(
    State(app): State<App>,
    who: BuyerOrAdmin<OrdersPlace>,
    Name(order): Name,
    Json(hold): Json<NewHold>,
) -> Result<Response, Problem> {
    let change = hold_change(hold.seconds, hold.session.as_deref())?;
    let extended = app.engine.extend(order_id(&order)?, who.caller(), &change);
    match extended.await? {
        Extended::Done(order) => shown(&app, order, who.buyer.is_none()).await,
        Extended::InCart(cart) => Err(Problem::order_in_cart(cart)),
        Extended::NotFound => Err(Problem::order_not_found()),
        Extended::Refused(state) => Err(Problem::not_extendable(state)),
        Extended::TooLong { max_seconds, .. } => Err(Problem::hold_too_long(max_seconds)),
    }
}

/// Cancels a held order and releases its units immediately.
#[utoipa::path(delete, path = "/v1/orders/{order}", operation_id = "cancelOrder", tag = "buyers", params(("order" = String, Path, description = "the order's id")),
    responses(BuyerOrAdmin<OrdersPlace>, (status = 200, description = "cancelled, now or before", body = OrderBody),
        (status = 404, description = "`order_not_found`: also for an order of another buyer", body = Problem),
        (status = 409, description = "`order_not_cancellable`: it is paid or has ended; `order_in_cart`: the cart is cancelled as a whole", body = Problem),
        (status = 503, description = "`outcome_unknown`, `unavailable`: the same request tells", body = Problem)),
    security(("buyer" = []), ("admin" = [])))]
pub(crate) async fn cancel(
    State(app): State<App>,
    who: BuyerOrAdmin<OrdersPlace>,
    Name(order): Name,
) -> Result<Response, Problem> {
    let cancelled = app.engine.cancel(order_id(&order)?, who.caller()).await?;
    let order = ended(cancelled, Problem::not_cancellable)?;
    shown(&app, order, who.buyer.is_none()).await
}

/// Records that the money of an order was returned, and releases its units, if it has any,
/// immediately.
#[utoipa::path(post, path = "/v1/orders/{order}/refund", operation_id = "refundOrder", tag = "admins", params(("order" = String, Path, description = "the order's id")),
    responses(AdminWith<RefundsWrite>, (status = 200, description = "refunded, now or before", body = OrderBody),
        (status = 404, description = "`order_not_found`", body = Problem),
        (status = 409, description = "`order_not_refundable`: it is not paid; `order_in_cart`: the cart is refunded as a whole or line by line", body = Problem),
        (status = 503, description = "`outcome_unknown`, `unavailable`: the same request tells", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn refund(
    State(app): State<App>,
    admin: AdminWith<RefundsWrite>,
    Name(order): Name,
) -> Result<Response, Problem> {
    let refunded = app.engine.refund(order_id(&order)?, &admin.name).await?;
    shown(&app, ended(refunded, Problem::not_refundable)?, true).await
}
