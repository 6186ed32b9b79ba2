//! Handlers that place and show orders.

use std::{convert::Infallible, time::Instant};

use axum::{
    body::Body,
    extract::{FromRequestParts, State},
    response::Response,
};
use bytes::Bytes;
use domain::{
    BuyerId, CartId, IdempotencyKey, Invalid, ItemId, Order, OrderId, OrderState, PaymentId,
    Quantity, Stated,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts};
use jiff::Timestamp;
use metrics::{Counter, Histogram};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    App, Problem,
    access::{Buyer, BuyerOrAdmin, Name, Read},
    body::{self, OrderUnits, Raw, Whole},
    life::AMOUNT_MAX,
    problem,
    single::single,
    text::header_of,
    words::OrderStateWord,
};
use crate::{
    engine::{Currency, EngineError, OrderView, Placed, Placement, StatedBy},
    timer::{OwnTimer, Timer},
};

const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// A new order.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOrder {
    /// Number of units that the order asks for.
    #[schema(value_type = u32, minimum = 1, maximum = 1_000_000, example = 1)]
    quantity: OrderUnits,
    /// The total of the shop in the currency's smallest unit, with shipping, tax and other goods: only a
    /// payment of this amount pays the order. Default: quantity times price. A buyer states no less.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_000_u64)]
    amount: Option<Whole<0, AMOUNT_MAX>>,
}

/// An order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OrderBody {
    /// The order's id.
    #[schema(value_type = String, example = "9ee2ddee-53dc-8690-8a2b-6181b5fbc615")]
    id: OrderId,
    /// The item that was ordered.
    #[schema(value_type = String, example = "maotai")]
    item: ItemId,
    /// Number of units that the order asks for.
    #[schema(value_type = u32, example = 1)]
    quantity: Quantity,
    /// The buyer. Only for admins.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "ann")]
    buyer: Option<BuyerId>,
    /// The order's state.
    #[schema(value_type = OrderStateWord, example = "held")]
    state: OrderState,
    /// The price of one unit in the currency's smallest unit.
    price: u64,
    /// What it costs, in the currency's smallest unit: the price of all units, or the shop's total.
    amount: u64,
    /// ISO 4217.
    #[schema(value_type = String, example = "USD")]
    currency: Currency,
    /// The provider's id of the payment, or null.
    #[schema(value_type = Option<String>, required = true)]
    payment: Option<PaymentId>,
    /// When its units were taken first.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    created_at: Option<Timestamp>,
    /// When the hold expires.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
    /// The cart that it is a line of, which alone changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    cart: Option<CartId>,
    /// Rises with every transition.
    version: u64,
}

impl OrderBody {
    /// The order for an admin, or for its buyer.
    fn of(order: OrderView, for_admin: bool) -> Self {
        Self {
            amount: order.amount(),
            id: order.id,
            item: order.item,
            quantity: order.quantity,
            buyer: for_admin.then_some(order.buyer),
            state: order.state,
            price: order.price.unit,
            currency: order.price.currency,
            payment: order.payment,
            created_at: order.created_at,
            expires_at: order.expires_at,
            cart: order.cart,
            version: order.version,
        }
    }
}

/// Shows an order for an admin, or for its buyer.
pub(crate) async fn shown(app: &App, order: Order, for_admin: bool) -> Result<Response, Problem> {
    Ok(view_shown(app.engine.view_order(order).await?, for_admin))
}

/// Shows the view of an order for an admin, or for its buyer.
pub(crate) fn view_shown(order: OrderView, for_admin: bool) -> Response {
    json(StatusCode::OK, &OrderBody::of(order, for_admin)).map(Body::from)
}

/// Places an order.
#[utoipa::path(post, path = "/v1/items/{item}/orders", operation_id = "placeOrder", tag = "buyers", request_body = NewOrder,
    params(("item" = String, Path, description = "the item"),
        ("Idempotency-Key" = String, Header, description = "identifies the order among the buyer's orders: 1 to 255 visible ASCII characters, in one header"),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: answer 202 before the ledger has the order")),
    responses(Buyer, (status = 201, description = "held; a repeat has the header `Idempotent-Replayed: true` and the order's current state", body = OrderBody, headers(("Location" = String))),
        (status = 202, description = "held, and not yet in the ledger", body = OrderBody, headers(("Location" = String))),
        (status = 404, description = "`item_not_found`", body = Problem),
        (status = 409, description = "`sold_out`, `buyer_limit_reached`, `not_open`: no unit was taken; with `final` false, another request with the same key may still take units", body = Problem),
        (status = 422, description = "`idempotency_key_reused`: the key belongs to an order with another quantity or amount", body = Problem),
        (status = 429, description = "`too_many_requests`", body = Problem, headers(("Retry-After" = u32), ("RateLimit" = String), ("RateLimit-Policy" = String))),
        (status = 503, description = "`outcome_unknown`: repeat the request with the same key", body = Problem)),
    security(("buyer" = [])))]
pub(crate) async fn place(
    State(app): State<App>,
    Buyer(buyer): Buyer,
    Name(item): Name,
    headers: OrderHeaders,
    Raw(body): Raw,
) -> Result<Response, Problem> {
    let placed = place_body(&app, buyer, &item, headers, &body, &OwnTimer).await?;
    Ok(placed.map(Body::from))
}

/// Places the order of a request, whether the router has taken it apart or `direct`.
pub(super) async fn place_body(
    app: &App,
    buyer: BuyerId,
    item: &str,
    headers: OrderHeaders,
    body: &[u8],
    timer: &impl Timer,
) -> Result<http::Response<Bytes>, Problem> {
    let order: NewOrder = body::parse(body)?;
    let key = headers.key?;
    let item = ItemId::new(item).map_err(|_| Problem::item_not_found())?;
    let mut placement = Placement {
        item,
        buyer,
        key,
        quantity: order.quantity.quantity()?,
        stated: Stated {
            amount: order.amount.map(|amount| amount.0),
        },
        stated_by: StatedBy::BuyerUnchecked,
        respond_async: headers.respond_async,
    };
    if let Some(amount) = placement.stated.amount {
        placement.stated_by = Box::pin(stated_by(app, &placement, amount)).await?;
    }
    // An order of which something is stated is answered when the ledger has it.
    let is_async = placement.respond_async && placement.stated == Stated::default();
    let started = Instant::now();
    let placed = app.engine.place_within(placement, timer).await;
    match answer(app, placed, started) {
        Ok(placed) => {
            let mut response = placed_order(placed.status, placed.replayed, &placed.order);
            if is_async {
                let applied = HeaderValue::from_static("respond-async");
                response.headers_mut().insert(PREFERENCE_APPLIED, applied);
            }
            Ok(response)
        }
        Err(Refusal::SoldOut) => Ok(problem::sold_out()),
        Err(Refusal::Shed) => Ok(problem::shed()),
        Err(Refusal::Problem(problem)) => Err(*problem),
    }
}

/// A buyer states no less than the price. A repeat of an order gets its answer, whatever the price
/// is now, and does not make the order cheaper.
async fn stated_by(app: &App, placement: &Placement, amount: u64) -> Result<StatedBy, Problem> {
    let Placement {
        item,
        buyer,
        key,
        quantity,
        ..
    } = placement;
    if app.engine.refuses_new_orders(item).await? {
        return Ok(StatedBy::BuyerUnchecked);
    }
    let price = app.engine.current_price(item, buyer, *quantity).await?;
    let price = price.amount(*quantity);
    if amount >= price {
        return Ok(StatedBy::Buyer);
    }
    match app.engine.is_placed(item, buyer, key).await? {
        true => Ok(StatedBy::BuyerUnchecked),
        false => Err(Problem::below_price(price)),
    }
}

/// An order that was placed, now or before.
pub(super) struct PlacedOrder {
    pub status: StatusCode,
    pub replayed: bool,
    pub order: OrderBody,
}

/// Why an order was not placed, or that it is unknown.
pub(super) enum Refusal {
    /// No unit is left, and that is recorded. The response is serialized once.
    SoldOut,
    /// The refusal of most orders of a sale. The response is serialized once.
    Shed,
    Problem(Box<Problem>),
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

/// The answer to one order, whether it came alone or in a batch. Counts it.
pub(super) fn answer(
    app: &App,
    placed: Result<Placed, EngineError>,
    started: Instant,
) -> Result<PlacedOrder, Refusal> {
    app.orders.count(&placed, started);
    app.outage.note(&placed);
    match placed.map_err(|error| Problem::of_order(&error))? {
        Placed::Order {
            order,
            replayed,
            recorded,
        } => Ok(PlacedOrder {
            status: if recorded {
                StatusCode::CREATED
            } else {
                StatusCode::ACCEPTED
            },
            replayed,
            order: OrderBody::of(order, false),
        }),
        Placed::SoldOut => Err(Refusal::SoldOut),
        Placed::Shed => Err(Refusal::Shed),
        Placed::TooManyUnits { max } => Err(Problem::too_many_units(max).into()),
        Placed::BuyerLimitReached => Err(Problem::buyer_limit_reached().into()),
        Placed::NotOpen {
            state,
            opens_at,
            is_final,
        } => Err(Problem::not_open(state, opens_at)
            .with_final(is_final)
            .into()),
        Placed::KeyReused { quantity } => Err(Problem::key_reused(quantity).into()),
        Placed::OtherAmount => Err(Problem::key_of_other_amount().into()),
        Placed::ItemNotFound => Err(Problem::item_not_found().into()),
    }
}

/// The part of an order that the headers carry. A problem of the body is reported before one of the
/// key.
pub(crate) struct OrderHeaders {
    pub key: Result<IdempotencyKey, Invalid>,
    pub respond_async: bool,
}

impl FromRequestParts<App> for OrderHeaders {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.headers))
    }
}

impl OrderHeaders {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self {
            key: read_key(headers),
            respond_async: respond_async(headers),
        }
    }
}

pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<IdempotencyKey, Problem> {
    Ok(read_key(headers)?)
}

fn read_key(headers: &HeaderMap) -> Result<IdempotencyKey, Invalid> {
    let value = single(headers, IDEMPOTENCY_KEY)?.map(|value| value.to_str().unwrap_or_default());
    IdempotencyKey::new(unquoted(value.unwrap_or_default()))
}

/// The draft of the header wants its value in quotes, and many clients leave them out. Both are the
/// same key.
fn unquoted(key: &str) -> &str {
    let inner = key.strip_prefix('"').and_then(|key| key.strip_suffix('"'));
    inner.unwrap_or(key)
}

/// RFC 7240 allows several comma-separated preferences in several headers.
fn respond_async(headers: &HeaderMap) -> bool {
    let preferences = headers
        .get_all("prefer")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    preferences
        .map(str::trim)
        .any(|preference| preference.eq_ignore_ascii_case("respond-async"))
}

fn placed_order(status: StatusCode, replayed: bool, order: &OrderBody) -> http::Response<Bytes> {
    let mut response = json(status, order);
    let headers = response.headers_mut();
    // The path has 11 characters and the id 36.
    if let Some(location) = header_of::<47>(format_args!("/v1/orders/{}", order.id)) {
        headers.insert(header::LOCATION, location);
    }
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// Space for the body of an order: growing into it would be one more allocation.
const BODY_BYTES: usize = 512;

fn json(status: StatusCode, body: &impl Serialize) -> http::Response<Bytes> {
    let mut text = Vec::with_capacity(BODY_BYTES);
    if serde_json::to_writer(&mut text, body).is_err() {
        text.clear();
    }
    let mut response = http::Response::new(text.into());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Handles of the order metrics. A lookup by name for each order would cost as much as the check of
/// its buyer's token.
pub(crate) struct OrderMetrics {
    replayed: Counter,
    held: Counter,
    sold_out: Counter,
    buyer_limit_reached: Counter,
    not_open: Counter,
    key_reused: Counter,
    too_many_units: Counter,
    item_not_found: Counter,
    outcome_unknown: Counter,
    seconds: Histogram,
}

impl Default for OrderMetrics {
    fn default() -> Self {
        let ended = |outcome: &'static str| metrics::counter!("stockade_orders_total", "outcome" => outcome);
        Self {
            replayed: ended("replayed"),
            held: ended("held"),
            sold_out: ended("sold_out"),
            buyer_limit_reached: ended("buyer_limit_reached"),
            not_open: ended("not_open"),
            key_reused: ended("idempotency_key_reused"),
            too_many_units: ended("too_many_units"),
            item_not_found: ended("item_not_found"),
            outcome_unknown: ended("outcome_unknown"),
            seconds: metrics::histogram!("stockade_order_seconds"),
        }
    }
}

impl OrderMetrics {
    fn count(&self, placed: &Result<Placed, EngineError>, started: Instant) {
        let ended = match placed {
            Ok(Placed::Order { replayed: true, .. }) => &self.replayed,
            Ok(Placed::Order { .. }) => &self.held,
            Ok(Placed::SoldOut | Placed::Shed) => &self.sold_out,
            Ok(Placed::BuyerLimitReached) => &self.buyer_limit_reached,
            Ok(Placed::NotOpen { .. }) => &self.not_open,
            Ok(Placed::KeyReused { .. } | Placed::OtherAmount) => &self.key_reused,
            Ok(Placed::TooManyUnits { .. }) => &self.too_many_units,
            Ok(Placed::ItemNotFound) => &self.item_not_found,
            Err(_) => &self.outcome_unknown,
        };
        ended.increment(1);
        self.seconds.record(started.elapsed().as_secs_f64());
    }
}

/// Shows an order to its buyer or an admin.
#[utoipa::path(get, path = "/v1/orders/{order}", operation_id = "getOrder", tag = "buyers", params(("order" = String, Path, description = "the order's id")),
    responses(BuyerOrAdmin<Read>, (status = 200, description = "the order", body = OrderBody),
        (status = 404, description = "`order_not_found`: also for an order of another buyer", body = Problem)),
    security(("buyer" = []), ("admin" = [])))]
pub(crate) async fn show(
    State(app): State<App>,
    who: BuyerOrAdmin<Read>,
    Name(order): Name,
) -> Result<Response, Problem> {
    let id = order.parse().map_err(|_| Problem::order_not_found())?;
    let order = app
        .engine
        .find_order(id, who.buyer.as_ref())
        .await?
        .ok_or_else(Problem::order_not_found)?;
    shown(&app, order, who.buyer.is_none()).await
}
