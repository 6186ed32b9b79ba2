//! The HTTP layer of the baselines that keep orders: Stockade's serving code and its check of
//! tokens in front of another store.

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

use crate::{buyers::JWT_SECRET, test_env::ADMIN_TOKEN};

/// Hold time, equal to that of the items that Stockade sells in this benchmark.
const HOLD: SignedDuration = SignedDuration::from_hours(24);

/// An order that a buyer requests.
#[derive(Debug, Clone)]
pub struct OrderRequest {
    /// Hash of item, buyer and key: a retry has the same id.
    pub id: Uuid,
    /// Item that the buyer orders.
    pub item: String,
    /// Buyer from the token.
    pub buyer: BuyerId,
    /// Number of units.
    pub quantity: i64,
    /// End of the hold, in milliseconds since 1970.
    pub expires_ms: i64,
}

/// What became of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is recorded, now or before, and its hold ends then (milliseconds since 1970).
    Held { expires_ms: i64 },
    /// Too few units are left.
    SoldOut,
    /// The buyer would have more than one may.
    LimitReached,
    /// The key belongs to an order with another quantity.
    KeyReused,
}

/// A store that records orders.
pub trait OrderStore: Send + Sync + 'static {
    /// Records the order.
    fn place(&self, request: OrderRequest) -> impl Future<Output = Result<Verdict>> + Send;
}

struct App<S> {
    credentials: Credentials,
    store: S,
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

/// Serves until it is killed. These stores answer on the shared runtime, so threads for connections
/// do not help them.
pub async fn serve<S: OrderStore>(listener: TcpListener, store: S) -> Result<()> {
    let credentials = Credentials::new(&BuyerKey::Secret(JWT_SECRET.into()), ADMIN_TOKEN)?;
    let router = Router::new()
        .route("/v1/items/{item}/orders", post(place::<S>))
        .with_state(Arc::new(App { credentials, store }));
    order::serve(
        listener,
        router,
        &Limits {
            threads: 0,
            ..Limits::default()
        },
        CancellationToken::new(),
    )
    .await;
    Ok(())
}

async fn place<S: OrderStore>(
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
    let request = OrderRequest {
        id,
        item: item.clone(),
        buyer,
        quantity: i64::from(quantity),
        expires_ms: expires_at.as_millisecond(),
    };
    match app.store.place(request).await {
        Ok(Verdict::Held { expires_ms }) => {
            let expires_at = Timestamp::from_millisecond(expires_ms).unwrap_or(expires_at);
            let body = Json(Placed {
                id,
                item: &item,
                quantity,
                state: "held",
                expires_at,
            });
            (
                StatusCode::CREATED,
                [(header::LOCATION, format!("/v1/orders/{id}"))],
                body,
            )
                .into_response()
        }
        Ok(Verdict::SoldOut | Verdict::LimitReached) => StatusCode::CONFLICT.into_response(),
        Ok(Verdict::KeyReused) => StatusCode::UNPROCESSABLE_ENTITY.into_response(),
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
