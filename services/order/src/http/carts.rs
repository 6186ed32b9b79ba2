//! Handlers of carts: orders of several items that a buyer gets all or none of.

use std::{collections::HashMap, fmt::Display};

use axum::{
    Extension,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use domain::{
    BuyerId, Cart, CartId, CartState, ItemId, OrderId, PaymentId, Quantity, RefusalReason,
};
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use super::{
    App, Problem,
    access::{AdminWith, BuyerOrAdmin, Name, Names, OrdersPlace, Read, RefundsWrite},
    body::{self, Json, OrderUnits, Raw, Whole},
    items::YEAR_SECONDS,
    life::{AMOUNT_MAX, hold_change, order_id, payment, reported},
    orders::{OrderBody, OrderHeaders, REPLAYED, view_shown},
    outcomes::{ended, paid},
    problem::FieldError,
    words::{AmountCheckWord, CartAmountWord, CartStateWord, UNCHECKED},
};
use crate::{
    engine::{Caller, CartPlaced, CartPlacement, Extended, LineReturned, Total},
    rate::PeerBucket,
};

/// A new cart.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCart {
    /// The buyer: what `sub` is in a buyer's token. Only an admin names the buyer, and has to.
    #[schema(example = "ann")]
    buyer: Option<String>,
    /// What the buyer wants, 1 to 20 lines. Lines of the same item are summed.
    #[schema(min_items = 1, max_items = 20)]
    lines: Vec<NewCartLine>,
    /// The total of the shop in the currency's smallest unit, with shipping, tax, vouchers and other
    /// goods: only a payment of this amount pays the cart. 0: it is free. `unchecked`: a payment of any
    /// amount pays it. Default: the price of the lines. Only an admin states less than that, or `unchecked`.
    #[schema(value_type = Option<CartAmountWord>)]
    amount: Option<NewAmount>,
}

/// What a cart costs, as a number or a word.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a whole number from 0 to 1000000000000000000, or the word `unchecked`"
)]
enum NewAmount {
    Of(Whole<0, AMOUNT_MAX>),
    Word(AmountWord),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AmountWord {
    Unchecked,
}

impl From<NewAmount> for Total {
    fn from(amount: NewAmount) -> Self {
        match amount {
            NewAmount::Of(amount) => Self::Of(amount.0),
            NewAmount::Word(AmountWord::Unchecked) => Self::Unchecked,
        }
    }
}

/// A line of a new cart.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCartLine {
    /// The item.
    #[schema(example = "maotai")]
    item: String,
    /// Number of units.
    #[schema(value_type = u32, minimum = 1, maximum = 1_000_000, example = 1)]
    quantity: OrderUnits,
}

/// A cart.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CartBody<'a> {
    /// The cart's id.
    #[schema(value_type = String, example = "2d0f5c0b-53dc-8690-8a2b-6181b5fbc615")]
    id: CartId,
    /// The cart's state.
    #[schema(value_type = CartStateWord, example = "held")]
    state: CartState,
    /// Its orders, as they were listed.
    lines: Vec<LineBody<'a>>,
    /// What it costs, in the currency's smallest unit: the price of all lines, or the shop's total.
    amount: u64,
    /// `unchecked`: a payment of any amount pays the cart, and `amount` is what was paid once it is.
    /// Absent: only a payment of `amount` pays it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<AmountCheckWord>)]
    amount_check: Option<&'static str>,
    /// ISO 4217.
    #[schema(example = "USD")]
    currency: &'a str,
    /// When the holds expire; while it is `placing`, when placing it fails.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
    /// The provider's id of the payment, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    payment: Option<&'a PaymentId>,
    /// Why it is `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "sold_out")]
    code: Option<RefusalReason>,
    /// The item because of which it is `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    item: Option<&'a ItemId>,
}

/// A line of a cart.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LineBody<'a> {
    /// The item.
    #[schema(value_type = String, example = "maotai")]
    item: &'a ItemId,
    /// Id of the line's order, which the cart alone changes.
    #[schema(value_type = String)]
    order: OrderId,
    /// Number of units.
    #[schema(value_type = u32, example = 1)]
    quantity: Quantity,
}

impl<'a> CartBody<'a> {
    fn of(cart: &'a Cart) -> Self {
        let refusal = cart.refusal.as_ref();
        Self {
            id: cart.id,
            state: cart.state,
            lines: cart
                .lines
                .iter()
                .map(|line| LineBody {
                    item: &line.item,
                    order: line.order,
                    quantity: line.quantity,
                })
                .collect(),
            amount: cart.amount,
            amount_check: (!cart.is_checked).then_some(UNCHECKED),
            currency: &cart.currency,
            expires_at: cart.expires_at,
            payment: cart.payment.as_ref(),
            code: refusal.map(|refusal| refusal.reason),
            item: refusal.and_then(|refusal| refusal.item.as_ref()),
        }
    }
}

/// A cart in a list.
#[derive(Debug, ToSchema)]
#[schema(value_type = CartBody<'static>)]
pub(crate) struct CartRow(pub Cart);

impl Serialize for CartRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        CartBody::of(&self.0).serialize(serializer)
    }
}

/// A line, and where the request names its item first.
type PlacedLine = ((ItemId, Quantity), usize);

impl NewCart {
    /// The buyer, whom the token names or else the admin.
    fn buyer(&self, caller: &Caller) -> Result<BuyerId, Problem> {
        let refused = |expected: &dyn Display| {
            Problem::from(FieldError::new("buyer", format!("expected {expected}")))
        };
        match (caller.buyer(), &self.buyer) {
            (Some(buyer), None) => Ok(buyer.clone()),
            (Some(_), Some(_)) => Err(refused(&"none: the token names the buyer")),
            (None, Some(named)) => {
                BuyerId::addressable(named).map_err(|error| refused(&error.expected))
            }
            (None, None) => Err(refused(&"the buyer for whom an admin places the cart")),
        }
    }

    /// The lines with each item once, in the order of their first mention, with its place.
    fn into_lines(self) -> Result<Vec<PlacedLine>, Problem> {
        if !(1..=CartId::LINES_MAX).contains(&self.lines.len()) {
            let expected = format!("expected 1 to {} lines", CartId::LINES_MAX);
            return Err(Problem::from(FieldError::new("lines", expected)));
        }
        let (mut lines, mut places) = (Vec::new(), HashMap::new());
        for (at, line) in self.lines.into_iter().enumerate() {
            let id = ItemId::new(&line.item).map_err(|_| unknown_item(at, &line.item))?;
            let place = *places.entry(id.clone()).or_insert(lines.len());
            if place == lines.len() {
                lines.push((id, 0, at));
            }
            lines[place].1 += line.quantity.0;
        }
        let summed = lines.into_iter().map(|(id, units, at)| {
            let units = u32::try_from(units).unwrap_or(u32::MAX);
            let quantity = Quantity::new(units).map_err(|error| {
                let expected = format!("all lines of {id} together: expected {}", error.expected);
                Problem::from(FieldError::of_part("lines", at, "quantity", expected))
            })?;
            Ok(((id, quantity), at))
        });
        summed.collect()
    }
}

fn unknown_item(line: usize, name: &str) -> Problem {
    let pointer = |detail: &str| FieldError::of_part("lines", line, "item", detail);
    Problem::no_such_item(name, pointer)
}

fn shown(cart: &Cart) -> Response {
    (StatusCode::OK, axum::Json(CartBody::of(cart))).into_response()
}

fn cart_id(text: &str) -> Result<CartId, Problem> {
    text.parse().map_err(|_| Problem::cart_not_found())
}

/// Places a cart: all of its lines are held, or none. An admin places it for the `buyer` of the body.
#[utoipa::path(post, path = "/v1/carts", operation_id = "placeCart", tag = "buyers", request_body = NewCart,
    params(("Idempotency-Key" = String, Header, description = "identifies the cart among the buyer's carts: 1 to 255 visible ASCII characters")),
    responses(BuyerOrAdmin<OrdersPlace>, (status = 201, description = "held; a repeat has the header `Idempotent-Replayed: true` and the cart's current state", body = CartBody, headers(("Location" = String))),
        (status = 400, description = "`invalid_request`: nothing was changed", body = Problem),
        (status = 404, description = "`item_not_found`: nothing was changed", body = Problem),
        (status = 409, description = "`sold_out`, `buyer_limit_reached`, `not_open` with the `item`, `cart_timed_out`: no line has units; `final` says whether the key is decided, or whether a repeat with it is decided anew", body = Problem),
        (status = 422, description = "`idempotency_key_reused`: the key belongs to a cart with other lines or another amount", body = Problem),
        (status = 429, description = "`too_many_requests`", body = Problem, headers(("Retry-After" = u32), ("RateLimit" = String), ("RateLimit-Policy" = String))),
        (status = 503, description = "`outcome_unknown`: repeat the request with the same key", body = Problem)),
    security(("buyer" = []), ("admin" = [])))]
pub(crate) async fn place(
    State(app): State<App>,
    who: BuyerOrAdmin<OrdersPlace>,
    peer: Option<Extension<PeerBucket>>,
    headers: OrderHeaders,
    Raw(raw): Raw,
) -> Result<Response, Problem> {
    let new = body::parse::<NewCart>(&raw)?;
    let (buyer, total) = (new.buyer(who.caller())?, new.amount.map(Total::from));
    let (lines, places): (Vec<_>, Vec<_>) = new.into_lines()?.into_iter().unzip();
    if let Some(buyer) = &who.buyer {
        app.rates.admit_lines(buyer, lines.len())?;
    }
    if let Some(Extension(peer)) = peer {
        peer.admit_lines(lines.len())?;
    }
    let placement = CartPlacement {
        buyer,
        key: headers.key?,
        lines,
        placer: who.caller().admin().cloned(),
        total,
    };
    let items: Vec<_> = placement
        .lines
        .iter()
        .map(|(item, _)| item.clone())
        .collect();
    let placed = app.engine.place_cart(placement).await;
    let refused = |line: usize, field: &str, expected: String| {
        let error = FieldError::of_part("lines", places[line], field, expected);
        Err(Problem::from(error))
    };
    match placed.map_err(|error| Problem::of_order(&error))? {
        CartPlaced::Cart { cart, replayed } => Ok(placed_cart(&cart, replayed)),
        CartPlaced::Refused(refusal) => Err(Problem::cart_refused(&refusal)),
        CartPlaced::KeyReused => Err(Problem::cart_key_reused()),
        CartPlaced::Foreseen { line, reason } => {
            Err(Problem::cart_foreseen(items[line].clone(), reason))
        }
        CartPlaced::TooDear { line } => {
            let expected = format!("expected lines that cost {AMOUNT_MAX} at most together");
            refused(line, "quantity", expected)
        }
        CartPlaced::TooCheap { price } => {
            let expected = format!(
                "expected {price} at least, the price of the lines: only an admin states less, or `{UNCHECKED}`"
            );
            Err(Problem::from(FieldError::new("amount", expected)))
        }
        CartPlaced::ItemNotFound { line } => Err(unknown_item(places[line], items[line].as_str())),
        CartPlaced::OtherCurrency { line, expected } => {
            let expected = format!("expected an item priced in {expected}, as the first line's");
            refused(line, "item", expected)
        }
        CartPlaced::TooManyUnits { line, max } => {
            let expected = format!("expected {max} at most, the item's max_per_order");
            refused(line, "quantity", expected)
        }
    }
}

fn placed_cart(cart: &Cart, replayed: bool) -> Response {
    let mut response = (StatusCode::CREATED, axum::Json(CartBody::of(cart))).into_response();
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::try_from(format!("/v1/carts/{}", cart.id)) {
        headers.insert(header::LOCATION, location);
    }
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// Shows a cart to its buyer or an admin.
#[utoipa::path(get, path = "/v1/carts/{cart}", operation_id = "getCart", tag = "buyers", params(("cart" = String, Path, description = "the cart's id")),
    responses(BuyerOrAdmin<Read>, (status = 200, description = "the cart", body = CartBody),
        (status = 404, description = "`cart_not_found`: also for a cart of another buyer", body = Problem), (status = 503, description = "`unavailable`", body = Problem)),
    security(("buyer" = []), ("admin" = [])))]
pub(crate) async fn show(
    State(app): State<App>,
    who: BuyerOrAdmin<Read>,
    Name(cart): Name,
) -> Result<Response, Problem> {
    let found = app
        .engine
        .find_cart(cart_id(&cart)?, who.buyer.as_ref())
        .await?;
    Ok(shown(&found.ok_or_else(Problem::cart_not_found)?))
}

/// A payment of a cart that the provider reports.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCartPayment {
    /// The provider's id of the payment, the same in a repeat: 1 to 255 visible ASCII characters.
    #[schema(value_type = String, example = "pay_123")]
    payment: String,
    /// Amount paid in the currency's smallest unit: the `amount` of the cart, or any if it is
    /// `unchecked`. Required unless the cart costs nothing.
    #[schema(value_type = Option<u64>)]
    amount: Option<Whole<0, AMOUNT_MAX>>,
    /// The currency that it was paid in (ISO 4217, three capital letters): that of the cart. Default:
    /// it is not checked.
    #[schema(pattern = "^[A-Z]{3}$", example = "EUR")]
    currency: Option<String>,
    /// The cart that was paid: the cart of the path, which the signature does not cover.
    #[schema(example = "2d0f5c0b-53dc-8690-8a2b-6181b5fbc615")]
    cart: String,
}

/// Applies a payment to all lines of a cart, for the provider's webhook. The same payment may be
/// reported any number of times.
#[utoipa::path(post, path = "/v1/carts/{cart}/payment", operation_id = "payCart", tag = "payments", request_body = NewCartPayment,
    params(("cart" = String, Path, description = "the cart's id"),
        ("Stockade-Signature" = String, Header, description = "as for an order's payment")),
    responses((status = 200, description = "`confirmed`; or `refund_due`: the holds had expired and not every line could reacquire its units, so the money must be returned", body = CartBody),
        (status = 400, description = "`invalid_request`, `invalid_signature`", body = Problem),
        (status = 404, description = "`cart_not_found`", body = Problem),
        (status = 409, description = "`cart_not_payable`, `already_paid`: the money must be returned; `payment_already_used`: the payment was reported for something else; `payment_returned`: its money was returned before", body = Problem),
        (status = 422, description = "`amount_mismatch`, `currency_mismatch`: the journal has the payment, unless its amount is missing or 0; `cart_mismatch`: the body names another cart than the path", body = Problem),
        (status = 503, description = "`outcome_unknown`, `unavailable`: report it again; `payments_not_configured`: the service has no payment secret", body = Problem)))]
pub(crate) async fn pay(
    State(app): State<App>,
    Name(cart): Name,
    request: Request,
) -> Result<Response, Problem> {
    let reported = reported::<NewCartPayment>(&app, request).await?;
    let cart = cart_id(&cart)?;
    if reported.cart.parse() != Ok(cart) {
        return Err(Problem::other_cart());
    }
    let payment = payment(&reported.payment, reported.amount, reported.currency)?;
    let result = app.engine.pay_cart(cart, &payment).await;
    let result = result.map_err(|error| Problem::of_payment(&error))?;
    Ok(shown(&paid(result)?))
}

/// How long the holds of a cart shall be, and in which checkout session it is paid: one of them, or both.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCartHold {
    /// The length of the whole hold in seconds, counted from the earliest `created_at` of the cart's
    /// orders. At most the smallest `max_hold_seconds` of its items. Required without `session`.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 31_536_000, example = 1800)]
    seconds: Option<Whole<1, YEAR_SECONDS>>,
    /// The provider's id of the checkout session in which the cart is paid from now on: 1 to 255
    /// visible ASCII characters. The end of this one cancels the cart, and that of no other.
    #[schema(value_type = Option<String>, pattern = "^[!-~]{1,255}$", example = "cs_test_123")]
    session: Option<String>,
}

/// Extends the holds of all lines of a held cart, up to the smallest `max_hold_seconds` of its items, and
/// names the checkout session in which it is paid. A hold never gets shorter, and a repeat of the request changes nothing.
#[utoipa::path(post, path = "/v1/carts/{cart}/hold", operation_id = "extendCart", tag = "buyers", request_body = NewCartHold,
    params(("cart" = String, Path, description = "the cart's id")),
    responses(BuyerOrAdmin<OrdersPlace>, (status = 200, description = "the cart; the hold of every line ends at `expires_at` or later", body = CartBody),
        (status = 400, description = "`invalid_request`: also for more than the smallest `max_hold_seconds` of its items", body = Problem),
        (status = 404, description = "`cart_not_found`: also for a cart of another buyer", body = Problem),
        (status = 409, description = "`cart_not_extendable`: it is being placed, is paid or has ended", body = Problem),
        (status = 503, description = "`outcome_unknown`, `unavailable`: the same request tells", body = Problem)),
    security(("buyer" = []), ("admin" = [])))]
pub(crate) async fn extend(
    State(app): State<App>,
    who: BuyerOrAdmin<OrdersPlace>,
    Name(cart): Name,
    Json(hold): Json<NewCartHold>,
) -> Result<Response, Problem> {
    let change = hold_change(hold.seconds, hold.session.as_deref())?;
    let (id, caller) = (cart_id(&cart)?, who.caller());
    match app.engine.extend_cart(id, caller, &change).await? {
        Extended::Done(cart) => Ok(shown(&cart)),
        Extended::NotFound => Err(Problem::cart_not_found()),
        Extended::InCart(cart) => Err(Problem::order_in_cart(cart)),
        Extended::Refused(state) => Err(Problem::cart_not_extendable(state)),
        Extended::TooLong { item, max_seconds } => {
            Err(Problem::cart_hold_too_long(&item, max_seconds))
        }
    }
}

/// Cancels all lines of a held cart and releases their units immediately.
#[utoipa::path(delete, path = "/v1/carts/{cart}", operation_id = "cancelCart", tag = "buyers", params(("cart" = String, Path, description = "the cart's id")),
    responses(BuyerOrAdmin<OrdersPlace>, (status = 200, description = "cancelled, now or before", body = CartBody),
        (status = 404, description = "`cart_not_found`: also for a cart of another buyer", body = Problem),
        (status = 409, description = "`cart_not_cancellable`: it is being placed, is paid or has ended", body = Problem),
        (status = 503, description = "`outcome_unknown`, `unavailable`: the same request tells", body = Problem)),
    security(("buyer" = []), ("admin" = [])))]
pub(crate) async fn cancel(
    State(app): State<App>,
    who: BuyerOrAdmin<OrdersPlace>,
    Name(cart): Name,
) -> Result<Response, Problem> {
    let id = cart_id(&cart)?;
    let cancelled = app.engine.cancel_cart(id, who.caller()).await?;
    Ok(shown(&ended(cancelled, Problem::cart_not_cancellable)?))
}

/// Records that the money of a cart was returned, and releases the units of all lines, if they have
/// any, immediately.
#[utoipa::path(post, path = "/v1/carts/{cart}/refund", operation_id = "refundCart", tag = "admins", params(("cart" = String, Path, description = "the cart's id")),
    responses(AdminWith<RefundsWrite>, (status = 200, description = "refunded, now or before", body = CartBody),
        (status = 404, description = "`cart_not_found`", body = Problem),
        (status = 409, description = "`cart_not_refundable`: it is not paid", body = Problem),
        (status = 503, description = "`outcome_unknown`, `unavailable`: the same request tells", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn refund(
    State(app): State<App>,
    admin: AdminWith<RefundsWrite>,
    Name(cart): Name,
) -> Result<Response, Problem> {
    let refunded = app.engine.refund_cart(cart_id(&cart)?, &admin.name).await?;
    Ok(shown(&ended(refunded, Problem::cart_not_refundable)?))
}

/// Records that the money of one line of a confirmed cart was returned, and releases its units
/// immediately. The other lines stay the buyer's. With the last line the cart is refunded.
#[utoipa::path(post, path = "/v1/carts/{cart}/lines/{order}/refund", operation_id = "refundCartLine", tag = "admins",
    params(("cart" = String, Path, description = "the cart's id"), ("order" = String, Path, description = "the id of the line's order")),
    responses(AdminWith<RefundsWrite>, (status = 200, description = "the line's order, refunded now or before; its `amount` is the line's share of what the cart costs", body = OrderBody),
        (status = 404, description = "`cart_not_found`; `order_not_found`: it is no line of the cart", body = Problem),
        (status = 409, description = "`cart_not_refundable`: it is not confirmed; one that is `refund_due` is refunded as a whole", body = Problem),
        (status = 503, description = "`outcome_unknown`, `unavailable`: the same request tells", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn refund_line(
    State(app): State<App>,
    admin: AdminWith<RefundsWrite>,
    Names(cart, line): Names,
) -> Result<Response, Problem> {
    let (cart, line) = (cart_id(&cart)?, order_id(&line)?);
    let returned = app.engine.return_cart_line(cart, line, &admin.name).await?;
    match returned {
        LineReturned::Line(order) => Ok(view_shown(*order, true)),
        LineReturned::NotFound => Err(Problem::cart_not_found()),
        LineReturned::NoLine => Err(Problem::order_not_found()),
        LineReturned::Refused(state) => Err(Problem::cart_not_refundable(state)),
    }
}
