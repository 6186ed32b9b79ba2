//! The HTTP layer of the rivals that keep orders: Stockade's serving code and its check of tokens around another way to sell.

use std::sync::Arc;

use anyhow::Result;
use axum::{
    Json, Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use domain::{BuyerId, IdempotencyKey, ItemId, OrderId};
use jiff::{SignedDuration, Timestamp};
use order::{BuyerKey, Credentials, Limits};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{buyers::JWT_SECRET, site::ADMIN_TOKEN};

/// As the item of Stockade has it.
const HOLD: SignedDuration = SignedDuration::from_hours(24);

/// An order to be placed.
#[derive(Debug, Clone)]
pub struct Asked {
    /// A hash of item, buyer and key: a repeat has the same.
    pub id: Uuid,
    /// What is ordered.
    pub item: String,
    /// Who orders.
    pub buyer: BuyerId,
    /// How many units.
    pub quantity: i64,
    /// When its hold is over, in milliseconds since 1970.
    pub expires_ms: i64,
}

/// A way to sell.
pub trait Shop: Send + Sync + 'static {
    /// Whether the order is recorded, now or before; if not, nothing is left for it.
    fn place(&self, asked: Asked) -> impl Future<Output = Result<bool>> + Send;
}

struct App<S> {
    credentials: Credentials,
    shop: S,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewOrder {
    quantity: u32,
}

#[derive(Serialize)]
struct Placed<'a> {
    id: Uuid,
    item: &'a str,
    quantity: u32,
    state: &'static str,
    expires_at: Timestamp,
}

/// Serves until it is killed.
pub async fn serve<S: Shop>(listener: TcpListener, shop: S) -> Result<()> {
    let credentials = Credentials::new(&BuyerKey::Secret(JWT_SECRET.into()), ADMIN_TOKEN)?;
    let router = Router::new()
        .route("/items/{item}/orders", post(place::<S>))
        .with_state(Arc::new(App { credentials, shop }));
    order::serve(
        listener,
        router,
        &Limits::default(),
        CancellationToken::new(),
    )
    .await;
    Ok(())
}

async fn place<S: Shop>(
    State(app): State<Arc<App<S>>>,
    Path(item): Path<String>,
    headers: HeaderMap,
    Json(NewOrder { quantity }): Json<NewOrder>,
) -> Response {
    let Some(buyer) = bearer(&headers).and_then(|token| app.credentials.buyer_name(token)) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let key = headers
        .get("Idempotency-Key")
        .and_then(|key| IdempotencyKey::new(key.to_str().ok()?).ok());
    let (Some(key), Ok(name)) = (key, ItemId::new(&item)) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let id = OrderId::derive(&name, name.tag(), &buyer, &key).as_uuid();
    let expires_at = Timestamp::now() + HOLD;
    let asked = Asked {
        id,
        item: item.clone(),
        buyer,
        quantity: i64::from(quantity),
        expires_ms: expires_at.as_millisecond(),
    };
    match app.shop.place(asked).await {
        Ok(true) => {
            let body = Json(Placed {
                id,
                item: &item,
                quantity,
                state: "held",
                expires_at,
            });
            (
                StatusCode::CREATED,
                [(header::LOCATION, format!("/orders/{id}"))],
                body,
            )
                .into_response()
        }
        Ok(false) => StatusCode::CONFLICT.into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error:#}")).into_response(),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?
        .strip_prefix("Bearer ")
}
