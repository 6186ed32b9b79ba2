//! A test double of the service for the driver. It never sells out, and stalls, fails and loses
//! orders as configured.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::sleep};
use uuid::Uuid;

/// The faults of the double.
#[derive(Debug, Clone, Copy, Default)]
pub struct Misbehavior {
    /// From the order with this number on, no request completes for this time.
    pub stall: Option<(usize, Duration)>,
    /// The first response to every n-th order is `outcome_unknown`.
    pub unknown_every: Option<usize>,
    /// Number of orders that the audit lacks.
    pub loses: usize,
}

#[derive(Default)]
struct DoubleState {
    item: String,
    stock: u64,
    /// Order ids by token and idempotency key.
    orders: HashMap<String, Uuid>,
    stalls_until: Option<tokio::time::Instant>,
}

type Shared = (Misbehavior, Arc<Mutex<DoubleState>>);

/// Starts a double, writes its secrets to `dir` as `stockade up` does, and returns its address.
pub async fn start(dir: &Path, misbehavior: Misbehavior) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("http://{}", listener.local_addr().unwrap());
    std::fs::write(
        dir.join("run.toml"),
        "jwt_secret = \"a secret that is long enough\"\nadmin_token = \"admin\"\n",
    )
    .unwrap();
    let router = Router::new()
        .route("/v1/items", post(create))
        .route("/v1/items/{item}/orders", post(order))
        .route("/v1/items/{item}/audit", get(audit))
        .with_state((misbehavior, Arc::default()));
    drop(tokio::spawn(
        async move { axum::serve(listener, router).await },
    ));
    host
}

async fn create(State((_, state)): State<Shared>, Json(item): Json<Value>) -> Response {
    let stock = item["stock"].as_u64().unwrap();
    *state.lock().unwrap() = DoubleState {
        item: item["id"].as_str().unwrap().into(),
        stock,
        ..DoubleState::default()
    };
    (StatusCode::CREATED, Json(item_json(&item["id"], stock))).into_response()
}

async fn order(State((misbehavior, state)): State<Shared>, headers: HeaderMap) -> Response {
    let key = format!(
        "{:?} {:?}",
        headers["authorization"], headers["idempotency-key"]
    );
    let (outcome, stalls_until) = decide(misbehavior, &mut state.lock().unwrap(), key);
    if let Some(until) = stalls_until {
        sleep(until.saturating_duration_since(tokio::time::Instant::now())).await;
    }
    outcome
}

fn decide(
    misbehavior: Misbehavior,
    state: &mut DoubleState,
    key: String,
) -> (Response, Option<tokio::time::Instant>) {
    let known = state.orders.get(&key).copied();
    let id = *state.orders.entry(key).or_insert_with(Uuid::new_v4);
    let number = state.orders.len();
    if let (Some((at, time)), None) = (
        misbehavior.stall.filter(|(at, _)| number >= *at),
        state.stalls_until,
    ) {
        debug_assert!(number == at);
        state.stalls_until = Some(tokio::time::Instant::now() + time);
    }
    let outcome = match misbehavior.unknown_every {
        Some(every) if known.is_none() && number.is_multiple_of(every) => (
            StatusCode::SERVICE_UNAVAILABLE,
            Json(json!({ "code": "outcome_unknown" })),
        )
            .into_response(),
        _ => held(&state.item, id, known.is_some()),
    };
    (outcome, state.stalls_until)
}

fn held(item: &str, id: Uuid, replayed: bool) -> Response {
    let order = json!({
        "id": id, "item": item, "quantity": 1, "state": "held",
        "expires_at": "2100-01-01T00:00:00Z",
    });
    match replayed {
        true => (
            StatusCode::CREATED,
            [("idempotent-replayed", "true")],
            Json(order),
        )
            .into_response(),
        false => (StatusCode::CREATED, Json(order)).into_response(),
    }
}

async fn audit(State((misbehavior, state)): State<Shared>) -> Json<Value> {
    let state = state.lock().unwrap();
    Json(json!({
        "item": state.item, "stock": state.stock, "available": 0, "held": state.orders.len() - misbehavior.loses,
        "confirmed": 0, "returning": 0, "in_transit": 0, "in_flight": 0, "drift": 0,
        "miscounted": 0, "oversold": 0, "rejected_orders": 0, "ok": true, "segments": [],
    }))
}

fn item_json(id: &Value, stock: u64) -> Value {
    json!({
        "id": id, "title": id, "state": "open", "stock": stock, "available": stock, "held": 0,
        "confirmed": 0, "returning": 0, "sold_out": false, "price": 0, "currency": "USD",
        "limit_per_buyer": null, "opens_at": null, "closes_at": null, "hold_seconds": 900, "max_hold_seconds": 3600,
        "durability": "recorded",
    })
}
