//! The handler that places orders of several buyers with one request.
//!
//! A shop's backend sends the orders of the buyers that arrived together, so that it pays for one
//! request instead of hundreds. Each line is an order of its own: it has its own key and its own
//! result, and the lines run concurrently through the function that places a single order.

use std::time::Instant;

use axum::{
    extract::{FromRequest, Request, State},
    response::{IntoResponse, Response},
};
use domain::{BuyerId, IdempotencyKey, ItemId, Stated};
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::task::unconstrained;
use utoipa::ToSchema;

use super::{
    App, Problem,
    access::{AdminWith, Name, OrdersPlace},
    body::{self, OrderUnits, Whole},
    items::item_id,
    life::AMOUNT_MAX,
    orders::{OrderBody, OrderHeaders, PlacedOrder, Refusal, answer},
    problem::FieldError,
};
use crate::{
    engine::{Placement, StatedBy},
    timer::OwnTimer,
};

/// Orders of one request. More than one batch of the stock would have to wait for itself.
const ORDERS_MAX: usize = 512;
/// Largest body: 1 KiB for each order, where the longest names need some 400 bytes.
const BODY_BYTES: usize = ORDERS_MAX * 1024;

/// Orders of several buyers.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOrders {
    /// The orders, 1 to 512. Each is read by itself, so that a bad one refuses no other.
    #[schema(value_type = Vec<NewLine>, min_items = 1, max_items = 512)]
    orders: Vec<Box<RawValue>>,
}

/// An order of a batch.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewLine {
    /// The buyer: what `sub` is in a buyer's token.
    #[schema(example = "ann")]
    buyer: String,
    /// Number of units that the order asks for.
    #[schema(value_type = u32, minimum = 1, maximum = 1_000_000, example = 1)]
    quantity: OrderUnits,
    /// The total of the shop, which may be less than quantity times price. Default: that.
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_000_u64)]
    amount: Option<Whole<0, AMOUNT_MAX>>,
    /// Identifies the order among the buyer's orders, as `Idempotency-Key` does: 1 to 255 visible
    /// ASCII characters.
    #[schema(example = "cart-7")]
    key: String,
}

/// The results, in the order of the request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Results {
    results: Vec<LineResult>,
}

/// The result of an order: its status tells which of the two it is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum LineResult {
    /// The order is placed: 201, or 202 if the ledger may not have it yet.
    Placed(PlacedLine),
    /// The order is refused, or its outcome is unknown.
    Refused(RefusedLine),
}

/// An order that is placed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlacedLine {
    /// 201 or 202.
    #[schema(example = 201)]
    status: u16,
    /// Whether an earlier request placed it, as `Idempotent-Replayed` tells for a single order.
    replayed: bool,
    /// The order.
    #[serde(flatten)]
    order: OrderBody,
}

/// The problem that a single order would be answered with.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RefusedLine {
    /// The problem.
    #[serde(flatten)]
    problem: Problem,
    /// Seconds to wait before a repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u32>,
}

/// A body of the size that a batch may have.
pub(crate) struct BatchBody(NewOrders);

impl FromRequest<App> for BatchBody {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let bytes = body::read(request, app.body_bytes.max(BODY_BYTES)).await?;
        let batch: NewOrders = body::parse(&bytes)?;
        let fits = (1..=ORDERS_MAX).contains(&batch.orders.len());
        fits.then_some(Self(batch)).ok_or_else(|| {
            let expected = format!("expected 1 to {ORDERS_MAX} orders; none was placed");
            Problem::from(FieldError::new("orders", expected))
        })
    }
}

impl NewLine {
    fn into_placement(self, item: ItemId, respond_async: bool) -> Result<Placement, Problem> {
        let expected = |field: &str, invalid: domain::Invalid| {
            Problem::invalid(field, format_args!("expected {}", invalid.expected))
        };
        Ok(Placement {
            item,
            buyer: BuyerId::addressable(&self.buyer)
                .map_err(|invalid| expected("buyer", invalid))?,
            key: IdempotencyKey::new(&self.key).map_err(|invalid| expected("key", invalid))?,
            quantity: self.quantity.quantity()?,
            stated: Stated {
                amount: self.amount.map(|amount| amount.0),
            },
            stated_by: StatedBy::Admin,
            respond_async,
        })
    }
}

impl From<Result<PlacedOrder, Refusal>> for LineResult {
    fn from(result: Result<PlacedOrder, Refusal>) -> Self {
        let problem = match result {
            Ok(placed) => {
                return Self::Placed(PlacedLine {
                    status: placed.status.as_u16(),
                    replayed: placed.replayed,
                    order: placed.order,
                });
            }
            Err(Refusal::SoldOut) => Problem::no_units(),
            Err(Refusal::Shed) => Problem::no_units_now(),
            Err(Refusal::Problem(problem)) => *problem,
        };
        let (retry_after, problem) = problem.into_line();
        Self::Refused(RefusedLine {
            problem,
            retry_after,
        })
    }
}

/// Places orders of several buyers. Each has its own result, as if it had come alone.
#[utoipa::path(post, path = "/v1/items/{item}/orders:batch", operation_id = "placeOrders", tag = "admins", request_body = NewOrders,
    params(("item" = String, Path, description = "the item"),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: answer 202 for each order before the ledger has it")),
    responses(AdminWith<OrdersPlace>, (status = 200, description = "a result for each order, in the same order, with the status and the body of a single order", body = Results),
        (status = 400, description = "`invalid_request`: no order was placed", body = Problem),
        (status = 404, description = "`item_not_found`", body = Problem),
        (status = 503, description = "`unavailable`: no order was placed", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn place(
    State(app): State<App>,
    admin: AdminWith<OrdersPlace>,
    Name(item): Name,
    headers: OrderHeaders,
    BatchBody(batch): BatchBody,
) -> Result<Response, Problem> {
    let item = item_id(&item)?;
    let known = app.engine.known(&item).await?;
    known.ok_or_else(Problem::item_not_found)?;
    app.engine.note_placer(&item, &admin.name).await?;
    let lines = batch
        .orders
        .iter()
        .map(|line| place_line(&app, &item, line, headers.respond_async));
    // Without interruption all lines reach the stock's batcher before its next batch leaves.
    let results = unconstrained(join_all(lines)).await;
    Ok(axum::Json(Results {
        results: results.into_iter().map(LineResult::from).collect(),
    })
    .into_response())
}

async fn place_line(
    app: &App,
    item: &ItemId,
    line: &RawValue,
    respond_async: bool,
) -> Result<PlacedOrder, Refusal> {
    let line: NewLine = body::parse(line.get().as_bytes())?;
    let placement = line.into_placement(item.clone(), respond_async)?;
    let started = Instant::now();
    let placed = app.engine.place_within(placement, &OwnTimer).await;
    answer(app, placed, started)
}
