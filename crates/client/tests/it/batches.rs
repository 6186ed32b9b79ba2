//! Orders that arrive together travel together, and each keeps its key until its outcome is known.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use client::{
    Admin, BuyerOrder, Client, Error, IdempotencyKey, OrderBatcher, ProblemCode, RetryPolicy, Token,
};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Semaphore};

use crate::server::{ID, Scripted, Server, brief, problem};

/// A service that answers as many batches as a test lets it.
#[derive(Clone)]
struct Shop {
    url: String,
    answers: Arc<Semaphore>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// Buyers and keys of each request, the first one first.
    batches: Vec<Vec<(String, String)>>,
    /// How many times the outcome of a buyer's order is still unknown. The buyer `""`: of a
    /// request.
    unknown: HashMap<&'static str, usize>,
}

impl Shop {
    async fn start(answers: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shop = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            answers: Arc::new(Semaphore::new(answers)),
            seen: Arc::default(),
        };
        let router = Router::new().fallback(answer).with_state(shop.clone());
        drop(tokio::spawn(
            async move { axum::serve(listener, router).await },
        ));
        shop
    }

    fn admin(&self, retry: RetryPolicy) -> Admin {
        let client = Client::new(&self.url).unwrap().with_retry(retry);
        client.admin(Token::bearer("secret").unwrap())
    }

    fn sizes(&self) -> Vec<usize> {
        let seen = self.seen.lock().unwrap();
        seen.batches.iter().map(Vec::len).collect()
    }

    /// Waits until this many requests have arrived.
    async fn received(&self, requests: usize) {
        while self.sizes().len() < requests {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn keys_of(&self, buyer: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let lines = seen.batches.iter().flatten();
        lines
            .filter(|(of, _)| of == buyer)
            .map(|(_, key)| key.clone())
            .collect()
    }
}

async fn answer(State(shop): State<Shop>, Json(body): Json<Value>) -> Response {
    let lines = body["orders"].as_array().unwrap();
    let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    let named = lines
        .iter()
        .map(|line| (text(line, "buyer"), text(line, "key")));
    shop.seen.lock().unwrap().batches.push(named.collect());
    shop.answers.acquire().await.unwrap().forget();
    let mut seen = shop.seen.lock().unwrap();
    let mut is_unknown = |buyer: &str| {
        let left = seen.unknown.get_mut(buyer).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    };
    if is_unknown("") {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let results = lines.iter().map(|line| match &*text(line, "buyer") {
        buyer if is_unknown(buyer) => json!({ "status": 503, "code": "outcome_unknown", "retry_after": 1 }),
        "late" => json!({ "status": 409, "code": "sold_out", "detail": "none left" }),
        _ => json!({ "status": 201, "replayed": false, "id": ID, "item": "vase", "quantity": line["quantity"],
                     "state": "held", "expires_at": "2026-01-01T00:00:00Z" }),
    });
    Json(json!({ "results": results.collect::<Vec<_>>() })).into_response()
}

fn eager() -> RetryPolicy {
    RetryPolicy::every(Duration::from_millis(5), Duration::from_secs(600))
}

fn key(key: &str) -> IdempotencyKey {
    IdempotencyKey::new(key).unwrap()
}

/// Orders of these buyers, each a task.
fn spawn(
    batcher: &OrderBatcher,
    buyers: impl Iterator<Item = usize>,
) -> Vec<tokio::task::JoinHandle<bool>> {
    let order = |buyer: usize| {
        let batcher = batcher.clone();
        tokio::spawn(async move {
            let buyer = format!("buyer-{buyer}");
            batcher.order(&buyer, 1, key(&buyer)).await.is_ok()
        })
    };
    buyers.map(order).collect()
}

#[tokio::test]
async fn orders_that_arrive_while_requests_are_under_way_share_the_next_ones() {
    let shop = Shop::start(0).await;
    let batcher = OrderBatcher::new(&shop.admin(RetryPolicy::never()), "vase");
    let mut orders = spawn(&batcher, 0..1);
    shop.received(1).await;
    orders.extend(spawn(&batcher, 1..2));
    shop.received(2).await;
    orders.extend(spawn(&batcher, 2..1002));
    // Lets the tasks enqueue their orders: on this one thread they all run before the answers do.
    tokio::task::yield_now().await;
    shop.answers.add_permits(100);
    assert!(join_all(orders).await.into_iter().all(Result::unwrap));
    let sizes = shop.sizes();
    assert_eq!(sizes.iter().sum::<usize>(), 1002);
    assert_eq!((sizes[0], sizes[1]), (1, 1), "a lone order leaves at once");
    assert_eq!(
        sizes[2..],
        [512, 488],
        "the others waited for a request to return"
    );
}

#[tokio::test]
async fn an_order_of_unknown_outcome_is_repeated_with_its_key() {
    let shop = Shop::start(1000).await;
    shop.seen.lock().unwrap().unknown = HashMap::from([("", 2), ("ann", 3)]);
    let batcher = OrderBatcher::new(&shop.admin(eager()), "vase");
    let [ann, bob, late] = ["ann", "bob", "late"].map(|buyer| {
        let batcher = batcher.clone();
        async move { batcher.order(buyer, 2, key(&format!("k-{buyer}"))).await }
    });
    let (ann, bob, late) = tokio::join!(ann, bob, late);
    assert_eq!(ann.unwrap().order.quantity, 2);
    assert!(bob.unwrap().recorded);
    assert!(late.unwrap_err().is(ProblemCode::SoldOut));
    let of_ann = shop.keys_of("ann");
    assert!(of_ann.len() >= 4, "{of_ann:?}");
    assert!(of_ann.iter().all(|key| key == "k-ann"));
    let of_bob = shop.keys_of("bob");
    assert!(
        (1..=3).contains(&of_bob.len()),
        "its outcome is known: {of_bob:?}"
    );
}

#[tokio::test]
async fn an_unknown_outcome_stays_unknown_when_the_deadline_has_passed() {
    let shop = Shop::start(1000).await;
    shop.seen.lock().unwrap().unknown = HashMap::from([("ann", usize::MAX)]);
    let batcher = OrderBatcher::new(&shop.admin(brief()), "vase");
    let error = batcher.order("ann", 1, key("k")).await.unwrap_err();
    let Error::OutcomeUnknown { attempts, .. } = error else {
        panic!("{error:?}");
    };
    assert!(attempts > 1);
    assert_eq!(shop.keys_of("ann").len(), attempts as usize);
    assert_eq!(error.problem().unwrap().code, ProblemCode::OutcomeUnknown);
}

#[tokio::test]
async fn an_order_that_was_given_up_before_it_was_sent_is_not_sent() {
    let shop = Shop::start(0).await;
    let admin = shop.admin(RetryPolicy::never());
    let batcher = OrderBatcher::with_flights(&admin, "vase", 1);
    let first = spawn(&batcher, 0..1);
    shop.received(1).await;
    let gone = spawn(&batcher, 1..2);
    tokio::task::yield_now().await;
    gone[0].abort();
    let last = spawn(&batcher, 2..3);
    shop.answers.add_permits(10);
    assert!(
        join_all(first.into_iter().chain(last))
            .await
            .into_iter()
            .all(Result::unwrap)
    );
    assert!(shop.keys_of("buyer-1").is_empty());
    assert_eq!(shop.sizes(), [1, 1]);
}

#[tokio::test]
async fn a_refusal_of_the_request_is_the_refusal_of_each_order() {
    let server = Server::start([problem(404, "item_not_found")]).await;
    let client = Client::new(&server.url).unwrap().with_retry(eager());
    let admin = client.admin(Token::bearer("secret").unwrap());
    let batcher = OrderBatcher::new(&admin, "vase");
    let orders = ["ann", "bob"].map(|buyer| batcher.order(buyer, 1, key("k")));
    for result in join_all(orders).await {
        assert!(result.unwrap_err().is(ProblemCode::ItemNotFound));
    }
    assert!(server.received().len() <= 2, "a refusal is not repeated");
    assert_eq!(server.received()[0].path, "/v1/items/vase/orders:batch");
}

#[tokio::test]
async fn results_that_do_not_fit_the_orders_violate_the_contract() {
    let held = json!({ "status": 201, "id": ID, "item": "vase", "quantity": 1, "state": "held", "expires_at": "2026-01-01T00:00:00Z" });
    let script = [
        Scripted::new(200, json!({ "results": [held] }).to_string()),
        Scripted::new(200, json!({ "results": [held, {}] }).to_string()),
        Scripted::new(200, "{}"),
    ];
    let server = Server::start(script).await;
    let client = Client::new(&server.url).unwrap();
    let admin = client.admin(Token::bearer("secret").unwrap());
    let order = |buyer: &str, quantity| BuyerOrder {
        buyer: buyer.into(),
        quantity,
        key: key("k"),
        amount: None,
    };
    let orders = [order("ann", 2), order("bob", 1)];
    let short = admin.place_batch("vase", &orders).await;
    assert!(matches!(short, Err(Error::Contract { .. })), "{short:?}");
    let results = admin.place_batch("vase", &orders).await.unwrap();
    assert!(
        matches!(
            &results[..],
            [Err(Error::Contract { .. }), Err(Error::Contract { .. })]
        ),
        "{results:?}"
    );
    let none = admin.place_batch("vase", &orders).await;
    assert!(matches!(none, Err(Error::Contract { .. })), "{none:?}");
    assert_eq!(
        server.received()[0].body,
        r#"{"orders":[{"buyer":"ann","quantity":2,"key":"k"},{"buyer":"bob","quantity":1,"key":"k"}]}"#
    );
}
