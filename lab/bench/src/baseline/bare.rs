//! The ceiling: an axum handler that reads the same request, does nothing, and answers in the same
//! shape. Served like `axum::serve` does it, without limits, authentication or metrics.

use anyhow::Result;
use axum::{Json, Router, http::StatusCode, routing::post};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

#[derive(Deserialize)]
struct NewOrder {
    quantity: u32,
}

#[derive(Serialize)]
struct Order {
    id: &'static str,
    item: &'static str,
    quantity: u32,
    state: &'static str,
    expires_at: &'static str,
}

async fn place(Json(order): Json<NewOrder>) -> (StatusCode, Json<Order>) {
    let order = Order {
        id: "9ee2ddee-53dc-8690-8a2b-6181b5fbc615",
        item: "bench",
        quantity: order.quantity,
        state: "held",
        expires_at: "2026-11-21T08:08:01.773Z",
    };
    (StatusCode::CREATED, Json(order))
}

/// Serves until it is killed.
pub async fn serve(listener: TcpListener) -> Result<()> {
    Ok(axum::serve(
        listener,
        Router::new().route("/v1/items/{item}/orders", post(place)),
    )
    .await?)
}
