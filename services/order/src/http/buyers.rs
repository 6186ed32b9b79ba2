//! The handler that erases a buyer's name.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use domain::BuyerId;
use ledger::Erased;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    App, Problem,
    access::{AdminWith, BuyersErase, Name},
};
use crate::engine::EngineError;

/// Result of an erasure.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErasedBody {
    /// Orders that this request has erased the name from.
    erased: u64,
    /// Orders that keep the name until their items are archived. Repeat the request then.
    kept: u64,
}

/// Replaces a buyer's name in the orders at archived items by a random one, for good. The journal
/// gets the number of orders and not the name. The ids of the orders still follow from the name until
/// a drop deletes them.
#[utoipa::path(post, path = "/v1/buyers/{buyer}/erase", operation_id = "eraseBuyer", tag = "admins", params(("buyer" = String, Path, description = "the buyer")),
    responses(AdminWith<BuyersErase>, (status = 200, description = "the name is erased, now or before", body = ErasedBody), (status = 400, description = "`invalid_request`", body = Problem),
        (status = 409, description = "`buyer_has_held_orders`", body = Problem)),
    security(("admin" = [])))]
pub(crate) async fn erase(
    State(app): State<App>,
    admin: AdminWith<BuyersErase>,
    Name(buyer): Name,
) -> Result<Response, Problem> {
    let buyer = BuyerId::new(buyer)?;
    let erased = app.engine.ledger.erase_buyer(&buyer, &admin.name).await;
    match erased.map_err(EngineError::of_change)? {
        Erased::Done { orders, kept } => {
            let erased = orders;
            Ok(axum::Json(ErasedBody { erased, kept }).into_response())
        }
        Erased::Held { orders } => Err(Problem::buyer_has_held_orders(orders)),
    }
}
