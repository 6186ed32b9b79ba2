//! Errors as `application/problem+json` (RFC 9457).

use std::{fmt::Display, sync::LazyLock};

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use domain::{CartId, CartRefusal, CartState, Invalid, ItemId, OrderState, RefusalReason};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use super::{codes::Code, problems, request_id::RequestId, words::ProblemCode};
use crate::{
    auth::Scope,
    engine::{EngineError, NotReady},
    rate::TooMany,
};

/// An error response.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The page that describes the code: `/docs/problems#` and the code.
    #[serde(rename = "type", serialize_with = "described")]
    #[schema(value_type = String, example = "/docs/problems#sold_out")]
    kind: Code,
    /// The reason phrase of the status.
    title: &'static str,
    /// The HTTP status.
    #[serde(serialize_with = "number")]
    #[schema(value_type = u16, example = 409)]
    status: StatusCode,
    /// For programs. The meaning of a code never changes.
    #[schema(value_type = ProblemCode, example = "sold_out")]
    code: Code,
    /// For people.
    detail: String,
    /// The field of the request that was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    field: Option<Box<str>>,
    /// Every part of the request that was refused, where there may be several.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(value_type = Vec<FieldError>)]
    errors: Box<[FieldError]>,
    /// Names the request: `urn:request:` and its `X-Request-Id`. Not with `sold_out`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "urn:request:5f0c1a2b-7")]
    instance: Option<Box<str>>,
    /// The item of a cart that was refused, or that does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "maotai")]
    item: Option<Box<ItemId>>,
    /// With a refused order or cart: whether its key is decided for good. If it is false, nothing was
    /// written: a repeat with the same key is decided anew, and an earlier request whose outcome is
    /// unknown may still take units. Absent: it is decided.
    #[serde(rename = "final", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<bool>, example = true)]
    is_final: Option<bool>,
    /// With `order_in_cart`: the cart.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    cart: Option<Box<CartId>>,
    /// With `not_open`: the item's state. With `order_not_...`: the order's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    state: Option<Box<str>>,
    /// With `not_open`: start of the sale, or null.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    opens_at: Option<Option<Timestamp>>,
    #[serde(skip)]
    retry_after: Option<u32>,
    #[serde(skip)]
    too_many: Option<TooMany>,
}

/// A part of the request that was refused.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct FieldError {
    /// Where it is, as a JSON pointer; a parameter is `/` and its name.
    #[schema(example = "/limit")]
    pointer: String,
    /// What was expected.
    detail: String,
}

impl FieldError {
    pub(crate) fn new(name: &str, detail: impl Into<String>) -> Self {
        // `~` and `/` are escaped in a JSON pointer (RFC 6901).
        let name = name.replace('~', "~0").replace('/', "~1");
        Self {
            pointer: format!("/{name}"),
            detail: detail.into(),
        }
    }

    /// A row of the list with this name.
    pub(crate) fn of_row(name: &str, row: usize, detail: impl Into<String>) -> Self {
        let list = Self::new(name, detail);
        Self {
            pointer: format!("{}/{row}", list.pointer),
            ..list
        }
    }

    /// A field of a row of the list with this name.
    pub(crate) fn of_part(name: &str, row: usize, part: &str, detail: impl Into<String>) -> Self {
        let row = Self::of_row(name, row, detail);
        Self {
            pointer: format!("{}/{part}", row.pointer),
            ..row
        }
    }
}

/// A deployment takes about as long.
const NOT_CONFIGURED_SECONDS: u32 = 60;

/// Whole seconds from now until this time, rounded up, so that a repeat does not come too early.
/// `None`: it has passed.
fn seconds_until(time: Timestamp) -> Option<u32> {
    let left = time.duration_since(Timestamp::now()).as_millis();
    let seconds = (left > 0).then(|| left.div_euclid(1000) + 1)?;
    Some(u32::try_from(seconds).unwrap_or(u32::MAX))
}

/// The JSON pointer to a field such as `lines[2].quantity`. `None`: it is a header, or the whole query.
fn pointer_to(field: &str) -> Option<String> {
    let is_header = field.starts_with(|first: char| first.is_ascii_uppercase());
    match field {
        "body" => Some(String::new()),
        "query" => None,
        _ if is_header => None,
        _ => Some(format!(
            "/{}",
            field.replace(['.', '['], "/").replace(']', "")
        )),
    }
}

fn described<S: Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}#{}", problems::PATH, code.as_str()))
}

fn title(code: Code) -> &'static str {
    code.status().canonical_reason().unwrap_or("Error")
}

fn number<S: Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

/// The code of a cart's refusal, and the reason in words.
fn why_refused(refusal: &CartRefusal) -> (Code, String) {
    let item = refusal.item.as_ref().map_or("", ItemId::as_str);
    match refusal.reason {
        RefusalReason::SoldOut => (Code::SoldOut, format!("no units of {item} are left")),
        RefusalReason::BuyerLimitReached => (
            Code::BuyerLimitReached,
            format!("the cart exceeds the limit of units of {item} per buyer"),
        ),
        RefusalReason::NotOpen => (Code::NotOpen, format!("{item} does not sell")),
        RefusalReason::TimedOut => (
            Code::CartTimedOut,
            "placing the cart was not done in time".into(),
        ),
    }
}

impl Problem {
    fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: code,
            title: title(code),
            status: code.status(),
            code,
            detail: detail.into(),
            field: None,
            errors: Box::default(),
            instance: None,
            item: None,
            is_final: None,
            cart: None,
            state: None,
            opens_at: None,
            retry_after: None,
            too_many: None,
        }
    }

    /// A part of the body, a parameter or a header was refused. A header has no pointer.
    pub(crate) fn invalid(field: impl Into<String>, expected: impl Display) -> Self {
        let field = field.into();
        let detail = format!("{field}: {expected}");
        let pointer = pointer_to(&field).map(|pointer| FieldError {
            pointer,
            detail: detail.clone(),
        });
        Self {
            errors: pointer.into_iter().collect(),
            field: Some(field.into()),
            ..Self::new(Code::InvalidRequest, detail)
        }
    }

    /// Several parts of the request were refused. `field` and `detail` name the first one.
    pub(crate) fn invalid_fields(errors: Vec<FieldError>) -> Self {
        let first = errors.first();
        let (field, detail) = first.map_or_else(Default::default, |error| {
            (error.pointer[1..].to_owned(), error.detail.clone())
        });
        Self {
            errors: errors.into(),
            ..Self::invalid(field, detail)
        }
    }

    /// The field of the request that was refused.
    fn with_field(self, field: &str) -> Self {
        Self {
            field: Some(field.into()),
            ..self
        }
    }

    /// A repeat makes sense after so many seconds.
    fn with_retry_after(self, seconds: u32) -> Self {
        Self {
            retry_after: Some(seconds),
            ..self
        }
    }

    fn with_code(self, code: Code) -> Self {
        Self {
            kind: code,
            title: title(code),
            status: code.status(),
            code,
            ..self
        }
    }

    pub(crate) fn with_errors(self, errors: Vec<FieldError>) -> Self {
        Self {
            errors: errors.into(),
            ..self
        }
    }

    /// The code, for programs.
    pub(crate) fn code(&self) -> &'static str {
        self.code.as_str()
    }

    /// Whether what the request names does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    pub(crate) fn cart_not_found() -> Self {
        Self::new(
            Code::CartNotFound,
            "no such cart, or it belongs to another buyer",
        )
    }

    /// A line was refused, or the time was over: no line of the cart has units.
    pub(crate) fn cart_refused(refusal: &CartRefusal) -> Self {
        let (code, why) = why_refused(refusal);
        let detail =
            format!("{why}; the cart has no units of any item, and a new one needs a new key");
        Self {
            item: refusal.item.clone().map(Box::new),
            is_final: Some(true),
            ..Self::new(code, detail)
        }
    }

    /// A line would be refused, and nothing was written.
    pub(crate) fn cart_foreseen(item: ItemId, reason: RefusalReason) -> Self {
        let refusal = CartRefusal {
            reason,
            item: Some(item),
        };
        let (code, why) = why_refused(&refusal);
        let detail = format!(
            "{why}; this request wrote nothing, and a repeat with the same key is decided anew"
        );
        Self {
            item: refusal.item.map(Box::new),
            is_final: Some(false),
            ..Self::new(code, detail)
        }
    }

    pub(crate) fn cart_key_reused() -> Self {
        let detail = "this key belongs to a cart with other lines or another amount, and a new cart needs a new key; nothing was changed";
        Self::new(Code::IdempotencyKeyReused, detail).with_field("Idempotency-Key")
    }

    pub(crate) fn order_in_cart(cart: CartId) -> Self {
        let detail = format!(
            "the order is a line of the cart {cart}, which changes as a whole: use /v1/carts/{cart}"
        );
        Self {
            cart: Some(Box::new(cart)),
            ..Self::new(Code::OrderInCart, detail)
        }
    }

    pub(crate) fn other_cart() -> Self {
        let detail = "cart: the signed body names another cart than the path; nothing was changed";
        Self::new(Code::CartMismatch, detail).with_field("cart")
    }

    pub(crate) fn cart_not_payable(state: CartState) -> Self {
        let detail = "return the payment; it is in the journal";
        Self::of_state("cart", Code::CartNotPayable, state, detail)
    }

    pub(crate) fn cart_not_cancellable(state: CartState) -> Self {
        let detail = "only a held cart can be cancelled; nothing was changed";
        Self::of_state("cart", Code::CartNotCancellable, state, detail)
    }

    pub(crate) fn cart_not_extendable(state: CartState) -> Self {
        let detail = "only the holds of a held cart can be extended; nothing was changed";
        Self::of_state("cart", Code::CartNotExtendable, state, detail)
    }

    pub(crate) fn cart_not_refundable(state: CartState) -> Self {
        let detail = "only a paid cart can be refunded; nothing was changed";
        Self::of_state("cart", Code::CartNotRefundable, state, detail)
    }

    /// The payment of this order or cart has another amount.
    pub(crate) fn other_amount(payable: &str, expected: u64) -> Self {
        let detail = format!(
            "amount: expected {expected}, the amount of the {payable}; the {payable} is unchanged, and the payment is in the journal"
        );
        Self::new(Code::AmountMismatch, detail).with_field("amount")
    }

    /// The report names no amount, and this order or cart has one.
    pub(crate) fn no_amount(payable: &str, expected: u64) -> Self {
        let expected =
            format!("expected {expected}, the amount of the {payable}; nothing was changed");
        Self::invalid("amount", expected)
    }

    /// The report names no amount, and the cart takes any.
    pub(crate) fn no_amount_of_unchecked() -> Self {
        let expected = "expected what was paid, whatever it is; nothing was changed";
        Self::invalid("amount", expected)
    }

    pub(crate) fn invalid_cursor(name: &str, expected: &str) -> Self {
        Self::from(FieldError::new(name, expected)).with_code(Code::InvalidCursor)
    }

    pub(crate) fn cursor_expired() -> Self {
        let detail = "events behind the cursor were removed, because they were too old; start without `after`, and compare the orders that you know with the ledger's";
        Self::new(Code::CursorExpired, detail)
    }

    pub(crate) fn webhook_not_found() -> Self {
        Self::new(Code::WebhookNotFound, "no such webhook")
    }

    pub(crate) fn too_many_webhooks(max: u32) -> Self {
        let detail =
            format!("there are {max} webhooks, and more are not allowed; nothing was changed");
        Self::new(Code::TooManyWebhooks, detail)
    }

    pub(crate) fn unauthorized(expected: &str) -> Self {
        Self::new(
            Code::Unauthorized,
            format!("expected `Authorization: Bearer TOKEN` with {expected}"),
        )
    }

    /// The same, and what is wrong with what was presented.
    pub(crate) fn unauthorized_because(expected: &str, why: impl Display) -> Self {
        let problem = Self::unauthorized(expected);
        let detail = format!("{}: {why}", problem.detail);
        Self { detail, ..problem }
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(Code::Forbidden, detail)
    }

    pub(crate) fn lacks_scope(admin: &str, scope: Scope) -> Self {
        Self::forbidden(format!("the admin {admin} lacks the scope {scope}"))
    }

    pub(crate) fn invalid_signature(what: &str) -> Self {
        Self::new(Code::InvalidSignature, what)
    }

    pub(crate) fn no_stripe_secret() -> Self {
        Self::payments_not_configured(
            "this service has no secret of Stripe (STOCKADE_STRIPE_SECRET), so it accepts no signature",
        )
    }

    /// Providers repeat a report that was answered like this, so that none is lost until the secret
    /// is set.
    fn payments_not_configured(detail: &str) -> Self {
        Self::new(Code::PaymentsNotConfigured, detail).with_retry_after(NOT_CONFIGURED_SECONDS)
    }

    pub(crate) fn other_currency(expected: &str) -> Self {
        Self::new(
            Code::CurrencyMismatch,
            format!("the order is priced in {expected}: return this payment; it is in the journal"),
        )
    }

    pub(crate) fn no_payment_secret() -> Self {
        Self::payments_not_configured(
            "this service has no payment secret (STOCKADE_PAYMENT_SECRET), so it accepts no signature",
        )
    }

    /// This order or cart is in a state that the code refuses.
    fn of_state(payable: &str, code: Code, state: impl Display, detail: &str) -> Self {
        Self {
            state: Some(state.to_string().into()),
            ..Self::new(code, format!("the {payable} is {state}: {detail}"))
        }
    }

    pub(crate) fn not_payable(state: OrderState) -> Self {
        let detail = "return the payment; it is in the journal";
        Self::of_state("order", Code::OrderNotPayable, state, detail)
    }

    pub(crate) fn already_paid() -> Self {
        let detail = "another payment has paid the order: return this one; it is in the journal";
        Self::new(Code::AlreadyPaid, detail)
    }

    pub(crate) fn payment_of_another_order() -> Self {
        let detail = "the payment was reported for another order before; this order is unchanged, and the journal has the report";
        Self::new(Code::PaymentAlreadyUsed, detail).with_field("payment")
    }

    pub(crate) fn payment_returned() -> Self {
        let detail = "the money of this payment was returned before, so it pays nothing; nothing was changed, and nothing is due";
        Self::new(Code::PaymentReturned, detail).with_field("payment")
    }

    pub(crate) fn not_cancellable(state: OrderState) -> Self {
        let detail = "only a held order can be cancelled; nothing was changed";
        Self::of_state("order", Code::OrderNotCancellable, state, detail)
    }

    pub(crate) fn not_extendable(state: OrderState) -> Self {
        let detail = "only the hold of a held order can be extended; nothing was changed";
        Self::of_state("order", Code::OrderNotExtendable, state, detail)
    }

    pub(crate) fn hold_too_long(max_seconds: u32) -> Self {
        Self::hold_above(max_seconds, "the item's")
    }

    pub(crate) fn cart_hold_too_long(item: &ItemId, max_seconds: u32) -> Self {
        Self::hold_above(max_seconds, &format!("the item {item}'s"))
    }

    fn hold_above(max_seconds: u32, whose: &str) -> Self {
        let expected = format!(
            "expected {max_seconds} at most, {whose} max_hold_seconds; nothing was changed"
        );
        Self::from(FieldError::new("seconds", expected))
    }

    pub(crate) fn too_many_units(max: domain::Quantity) -> Self {
        let expected =
            format!("expected {max} at most, the item's max_per_order; no units were taken");
        Self::from(FieldError::new("quantity", expected))
    }

    pub(crate) fn refund_not_found() -> Self {
        let detail = "no such money is due; GET /v1/refunds-due lists it";
        Self::new(Code::RefundNotFound, detail)
    }

    pub(crate) fn not_refundable(state: OrderState) -> Self {
        let detail = "only a paid order can be refunded; nothing was changed";
        Self::of_state("order", Code::OrderNotRefundable, state, detail)
    }

    pub(crate) fn other_order() -> Self {
        let detail =
            "order: the signed body names another order than the path; nothing was changed";
        Self::new(Code::OrderMismatch, detail).with_field("order")
    }

    pub(crate) fn version_mismatch(version: u64) -> Self {
        let detail = format!("If-Match: the item's version is now {version}; nothing was changed");
        Self::new(Code::VersionMismatch, detail).with_field("If-Match")
    }

    pub(crate) fn if_match_required() -> Self {
        let detail = "If-Match: expected the item's version, which admins get as ETag of GET /v1/items/{item}";
        Self::new(Code::IfMatchRequired, detail).with_field("If-Match")
    }

    pub(crate) fn not_enough_unsold(available: u64) -> Self {
        let detail = format!(
            "stock: more units would have to be withdrawn than the {available} unsold ones; nothing was changed"
        );
        Self::new(Code::NotEnoughUnsold, detail).with_field("stock")
    }

    pub(crate) fn nothing_left() -> Self {
        let detail = "stock: the units were sold in the meantime, and none could be withdrawn";
        Self::new(Code::NotEnoughUnsold, detail).with_field("stock")
    }

    pub(crate) fn withdrawal_open() -> Self {
        let detail = "a withdrawal is open, and the stock is not known until it has settled; nothing was changed, retry later";
        Self::new(Code::WithdrawalOpen, detail).with_retry_after(1)
    }

    pub(crate) fn item_not_found() -> Self {
        Self::new(Code::ItemNotFound, "no such item")
    }

    /// One of several items that the request names does not exist. Of a text that is the name of none,
    /// only the beginning is repeated: it may be as long as a body.
    pub(crate) fn no_such_item(name: &str, error: impl Fn(&str) -> FieldError) -> Self {
        let shown: String = name.chars().take(ItemId::MAX_LEN).collect();
        let more = if shown.len() < name.len() { "..." } else { "" };
        let detail = format!("no such item: {shown}{more}");
        let error = error(&detail);
        Self {
            field: Some(error.pointer[1..].into()),
            item: ItemId::new(name).ok().map(Box::new),
            errors: [error].into(),
            ..Self::new(Code::ItemNotFound, detail)
        }
    }

    pub(crate) fn order_not_found() -> Self {
        Self::new(
            Code::OrderNotFound,
            "no such order, or it belongs to another buyer",
        )
    }

    pub(crate) fn no_such_path() -> Self {
        Self::new(Code::NotFound, "no such path; /docs lists the paths")
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            Code::MethodNotAllowed,
            "this path does not support this method; /docs lists the methods",
        )
    }

    /// The problem, and the seconds after which a repeat makes sense, where it is a part of another
    /// body and has no headers. A key is the field `key` there.
    pub(crate) fn into_line(mut self) -> (Option<u32>, Self) {
        if self.field.as_deref() == Some("Idempotency-Key") {
            self.field = Some("key".into());
        }
        (self.retry_after, self)
    }

    pub(crate) fn item_exists() -> Self {
        Self::new(
            Code::ItemExists,
            "a different item has this id; nothing was changed",
        )
    }

    pub(crate) fn item_archived() -> Self {
        Self::new(
            Code::ItemArchived,
            "the item is archived for good; nothing was changed",
        )
    }

    pub(crate) fn buyer_has_held_orders(orders: u64) -> Self {
        let detail = format!(
            "the buyer has {orders} held orders; nothing was changed, repeat the request when they have ended"
        );
        Self::new(Code::BuyerHasHeldOrders, detail)
    }

    pub(crate) fn item_not_droppable(reason: &str) -> Self {
        let detail = format!("nothing was changed: {reason}");
        Self::new(Code::ItemNotDroppable, detail)
    }

    pub(crate) fn item_not_archivable(reasons: &[String]) -> Self {
        let detail = format!("nothing was changed: {}", reasons.join("; "));
        Self::new(Code::ItemNotArchivable, detail)
    }

    /// Whether the key is decided for good.
    pub(crate) fn with_final(self, is_final: bool) -> Self {
        Self {
            is_final: Some(is_final),
            ..self
        }
    }

    pub(crate) fn no_units() -> Self {
        Self::new(
            Code::SoldOut,
            "no units are left for this order; none were taken",
        )
    }

    /// The same from the sold-out cache, which knows of no attempt that is still under way.
    pub(crate) fn no_units_now() -> Self {
        Self::no_units().with_final(false)
    }

    pub(crate) fn buyer_limit_reached() -> Self {
        Self::new(
            Code::BuyerLimitReached,
            "the order exceeds the limit of units per buyer; no units were taken",
        )
        // Such a refusal leaves no record.
        .with_final(false)
    }

    pub(crate) fn not_open(state: String, opens_at: Option<Timestamp>) -> Self {
        let detail = match (&*state, opens_at) {
            ("open", Some(opens_at)) if opens_at > Timestamp::now() => {
                format!("the sale opens at {opens_at}")
            }
            ("open", _) => "the sale has ended".into(),
            (state, _) => format!("the item is {state}"),
        };
        let problem = Self::new(Code::NotOpen, detail);
        Self {
            retry_after: opens_at.and_then(seconds_until),
            state: Some(state.into()),
            opens_at: Some(opens_at),
            ..problem
        }
    }

    /// A buyer states less than the price of the units.
    pub(crate) fn below_price(price: u64) -> Self {
        let expected = format_args!(
            "expected {price} at least, the price of the units: only an admin states less"
        );
        Self::invalid("amount", expected)
    }

    pub(crate) fn key_of_other_amount() -> Self {
        let detail =
            "this key belongs to an order with another amount; a new order needs a new key";
        Self::new(Code::IdempotencyKeyReused, detail).with_field("Idempotency-Key")
    }

    pub(crate) fn key_reused(quantity: domain::Quantity) -> Self {
        let detail = format!(
            "this key belongs to an order with quantity {quantity}; a new order needs a new key"
        );
        Self::new(Code::IdempotencyKeyReused, detail).with_field("Idempotency-Key")
    }

    pub(crate) fn stock_key_reused() -> Self {
        let detail = "this key belongs to another change of the item's stock, and a new change needs a new key; nothing was changed";
        Self::new(Code::IdempotencyKeyReused, detail).with_field("Idempotency-Key")
    }

    pub(crate) fn outcome_unknown() -> Self {
        let detail = "the order may have been placed; repeat the request with the same Idempotency-Key to find out";
        Self::new(Code::OutcomeUnknown, detail).with_retry_after(1)
    }

    /// The outcome of a transition of an order, or of a change of an item, is unknown.
    fn change_unknown() -> Self {
        let detail = "the change may have been made; repeat the request to find out";
        Self {
            detail: detail.into(),
            ..Self::outcome_unknown()
        }
    }

    pub(crate) fn unavailable() -> Self {
        let detail = "Redis or the ledger does not answer; repeat the request";
        Self::new(Code::Unavailable, detail).with_retry_after(1)
    }

    /// An order that no segment has seen.
    fn nothing_reserved() -> Self {
        let detail = "Redis or the ledger cannot take orders now, and this request has reserved nothing; repeat it with the same Idempotency-Key";
        Self {
            detail: detail.into(),
            ..Self::unavailable()
        }
    }

    /// A store refused before anything of the payment was written.
    fn payment_not_applied() -> Self {
        let detail =
            "the ledger does not take the payment now, and nothing was changed; report it again";
        Self {
            detail: detail.into(),
            ..Self::unavailable()
        }
    }

    fn stopping() -> Self {
        let detail = "the process is stopping; send requests to another one";
        Self {
            detail: detail.into(),
            ..Self::unavailable()
        }
    }

    /// For balancers and operators, so it says which store takes no orders, and why.
    fn not_ready(why: &NotReady) -> Self {
        let request_id = RequestId::current();
        // The look at the stores has logged what has changed. Anybody may ask, as often as they
        // like.
        tracing::debug!(%why, request_id, "not ready");
        Self {
            detail: format!("no order could be placed: {why}"),
            ..Self::unavailable()
        }
    }

    /// The client was too slow: its body was not complete in time.
    pub(crate) fn slow_request() -> Self {
        let detail = "the body of the request did not arrive in time; nothing was changed";
        Self::new(Code::RequestTimeout, detail).with_retry_after(1)
    }

    /// The service was too slow.
    pub(crate) fn timed_out() -> Self {
        let detail = "the service did not finish the request in time, and its outcome is unknown; repeat it with the same Idempotency-Key";
        Self {
            detail: detail.into(),
            ..Self::outcome_unknown()
        }
    }

    pub(crate) fn too_many_requests(too_many: TooMany) -> Self {
        let detail = format!(
            "too many requests of this {}; nothing was changed, repeat the request after {} s",
            too_many.of,
            too_many.retry_after()
        );
        Self {
            retry_after: Some(too_many.retry_after()),
            too_many: Some(too_many),
            ..Self::new(Code::TooManyRequests, detail)
        }
    }

    pub(crate) fn too_large() -> Self {
        Self::new(Code::PayloadTooLarge, "the body exceeds the size limit").with_errors(vec![
            FieldError {
                // The whole body, as RFC 6901 writes it.
                pointer: String::new(),
                detail: "expected a smaller body".into(),
            },
        ])
    }

    pub(crate) fn internal() -> Self {
        Self::new(Code::Internal, "internal error; it has been logged")
    }

    /// The engine failed while it placed an order. Units may have been taken, unless the error says
    /// otherwise.
    pub(crate) fn of_order(error: &EngineError) -> Self {
        // `Outage` logs one warning for an outage, not one for each failed order.
        tracing::debug!(
            error = error as &dyn std::error::Error,
            request_id = RequestId::current(),
            "order failed"
        );
        match error {
            EngineError::Unavailable(_) => Self::nothing_reserved(),
            _ => Self::outcome_unknown(),
        }
    }
}

impl Problem {
    /// The engine failed while it applied a payment. Unless the error proves otherwise, the payment
    /// may have been applied.
    pub(crate) fn of_payment(error: &EngineError) -> Self {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            request_id = RequestId::current(),
            "payment failed or its outcome is unknown"
        );
        if error.proves_unchanged() {
            return Self::payment_not_applied();
        }
        let detail = "the payment may have been applied; report it again";
        Self {
            detail: detail.into(),
            ..Self::outcome_unknown()
        }
    }
}

impl From<TooMany> for Problem {
    fn from(too_many: TooMany) -> Self {
        Self::too_many_requests(too_many)
    }
}

/// A part of the request was refused.
impl From<FieldError> for Problem {
    fn from(error: FieldError) -> Self {
        Self::invalid_fields(vec![error])
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        Self::invalid(invalid.field, format_args!("expected {}", invalid.expected))
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        if let EngineError::Stopping = error {
            return Self::stopping();
        }
        if let EngineError::NotReady(why) = &error {
            return Self::not_ready(why);
        }
        if let EngineError::Ledger(refusal) = &error
            && !refusal.is_retryable()
        {
            // A retry would fail too: the validation accepted values that the ledger refuses.
            tracing::error!(
                error = &error as &dyn std::error::Error,
                request_id = RequestId::current(),
                "the ledger refused a value that passed validation"
            );
            return Self::internal();
        }
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            request_id = RequestId::current(),
            "Redis or the ledger failed"
        );
        match error {
            EngineError::OutcomeUnknown(_) | EngineError::ChangeUnknown(_) => {
                Self::change_unknown()
            }
            _ => Self::unavailable(),
        }
    }
}

const TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");

/// No unit is left for the order, for good.
pub(crate) fn sold_out() -> http::Response<Bytes> {
    static BODY: LazyLock<Bytes> = LazyLock::new(|| serialized(&Problem::no_units()));
    refused(BODY.clone())
}

/// The response to most requests of a sale, serialized once.
pub(crate) fn shed() -> http::Response<Bytes> {
    static BODY: LazyLock<Bytes> = LazyLock::new(|| serialized(&Problem::no_units_now()));
    refused(BODY.clone())
}

fn serialized(problem: &Problem) -> Bytes {
    serde_json::to_vec(problem).unwrap_or_default().into()
}

fn refused(body: Bytes) -> http::Response<Bytes> {
    let mut response = http::Response::new(body);
    *response.status_mut() = StatusCode::CONFLICT;
    response.headers_mut().insert(header::CONTENT_TYPE, TYPE);
    response
}

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The headers of draft-ietf-httpapi-ratelimit-headers-10: the quota and its window in seconds, and what
/// is left until the window starts anew.
fn add_rate_limit(headers: &mut HeaderMap, too_many: &TooMany) {
    let (of, rate) = (too_many.of, too_many.rate);
    let policy = format!("\"{of}\";q={};w={}", rate.burst(), rate.window());
    let state = format!("\"{of}\";r=0;t={}", too_many.retry_after());
    for (name, value) in [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, state)] {
        // Digits and quotes are always a header.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        self.instance = RequestId::current().map(|id| format!("urn:request:{id}").into());
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (self.status, [(header::CONTENT_TYPE, TYPE)], body).into_response();
        if let Some(seconds) = self.retry_after {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(too_many) = &self.too_many {
            add_rate_limit(response.headers_mut(), too_many);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::PAYLOAD_TOO_LARGE {
            // The rest of the body is not read, so the connection ends, and the client should know.
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
