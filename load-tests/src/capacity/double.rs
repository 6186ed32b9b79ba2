//! A double of the service for the tests of the driver: it sells without end, and stalls, fails and loses orders when it is told to.

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

/// How the double misbehaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manners {
    /// From the order of this number on, nobody is answered for so long.
    pub stall: Option<(usize, Duration)>,
    /// The first answer to every order of which the number is a multiple says that the outcome is unknown.
    pub unknown_every: Option<usize>,
    /// Orders that the audit does not know.
    pub loses: usize,
}

#[derive(Default)]
struct Books {
    item: String,
    stock: u64,
    /// By idempotency key, whether it was answered.
    orders: HashMap<String, Uuid>,
    stalls_until: Option<tokio::time::Instant>,
}

type Double = (Manners, Arc<Mutex<Books>>);

/// Starts a double, leaves its address and secrets in `dir` as `up` does, and says where it is.
pub async fn start(dir: &Path, manners: Manners) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("http://{}", listener.local_addr().unwrap());
    std::fs::write(
        dir.join("run.toml"),
        "jwt_secret = \"a secret that is long enough\"\nadmin_token = \"admin\"\n",
    )
    .unwrap();
    let router = Router::new()
        .route("/items", post(create))
        .route("/items/{item}/orders", post(order))
        .route("/items/{item}/audit", get(audit))
        .with_state((manners, Arc::default()));
    drop(tokio::spawn(
        async move { axum::serve(listener, router).await },
    ));
    host
}

async fn create(State((_, books)): State<Double>, Json(item): Json<Value>) -> Response {
    let stock = item["stock"].as_u64().unwrap();
    *books.lock().unwrap() = Books {
        item: item["id"].as_str().unwrap().into(),
        stock,
        ..Books::default()
    };
    (
        StatusCode::CREATED,
        Json(json!({ "stock": stock, "available": stock })),
    )
        .into_response()
}

async fn order(State((manners, books)): State<Double>, headers: HeaderMap) -> Response {
    let key = format!(
        "{:?} {:?}",
        headers["authorization"], headers["idempotency-key"]
    );
    let (answer, stalls_until) = decide(manners, &mut books.lock().unwrap(), key);
    if let Some(until) = stalls_until {
        sleep(until.saturating_duration_since(tokio::time::Instant::now())).await;
    }
    answer
}

fn decide(
    manners: Manners,
    books: &mut Books,
    key: String,
) -> (Response, Option<tokio::time::Instant>) {
    let known = books.orders.get(&key).copied();
    let id = *books.orders.entry(key).or_insert_with(Uuid::new_v4);
    let number = books.orders.len();
    if let (Some((at, time)), None) = (
        manners.stall.filter(|(at, _)| number >= *at),
        books.stalls_until,
    ) {
        debug_assert!(number == at);
        books.stalls_until = Some(tokio::time::Instant::now() + time);
    }
    let answer = match manners.unknown_every {
        Some(every) if known.is_none() && number.is_multiple_of(every) => (
            StatusCode::SERVICE_UNAVAILABLE,
            Json(json!({ "code": "outcome_unknown" })),
        )
            .into_response(),
        _ => held(&books.item, id, known.is_some()),
    };
    (answer, books.stalls_until)
}

fn held(item: &str, id: Uuid, replayed: bool) -> Response {
    let order = json!({ "id": id, "item": item, "quantity": 1, "state": "held" });
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

async fn audit(State((manners, books)): State<Double>) -> Json<Value> {
    let books = books.lock().unwrap();
    Json(
        json!({ "stock": books.stock, "held": books.orders.len() - manners.loses, "confirmed": 0, "in_flight": 0, "drift": 0, "oversold": 0 }),
    )
}
