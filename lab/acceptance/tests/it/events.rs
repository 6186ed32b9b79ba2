//! Events of real processes: a publisher that is killed loses none.

use std::{
    collections::HashSet,
    fs::OpenOptions,
    io::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Json, Router, extract::State, routing::post};
use reqwest::Client;
use serde_json::{Value, json};
use testbed::free_port;
use tokio::net::TcpListener;

use crate::{
    process::{Serving, create},
    test_env::TestEnv,
};

/// The orders of the events that a receiver has accepted.
type Held = Arc<Mutex<Vec<String>>>;

async fn receive(State(held): State<Held>, Json(event): Json<Value>) {
    assert_eq!(event["type"], "stockade.order.held");
    // Slow, so that the kill finds events that are not sent.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let orders = event["data"]["orders"].as_array().unwrap();
    let ids = orders.iter().map(|id| id.as_str().unwrap().to_owned());
    held.lock().unwrap().extend(ids);
}

async fn receiver() -> (String, Held) {
    let held = Held::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let router = Router::new()
        .route("/hook", post(receive))
        .with_state(Arc::clone(&held));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, held)
}

/// Waits until so many different orders have arrived. A killed publisher's lease ends first.
async fn has(held: &Held, orders: usize) -> HashSet<String> {
    for _ in 0..2400 {
        let ids: HashSet<_> = held.lock().unwrap().iter().cloned().collect();
        if ids.len() >= orders {
            return ids;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} of {orders} orders", held.lock().unwrap().len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_publisher_loses_no_event() {
    let env = TestEnv::new().await;
    let mut settings = OpenOptions::new()
        .append(true)
        .open(env.dir().join("stockade.toml"))
        .unwrap();
    writeln!(settings, "webhooks_allow_private = \"true\"").unwrap();
    let roles = ["--roles", "order,recorder"];
    let service = Serving::serve(env.dir(), free_port().await, &roles).await;
    let url = &service.url;
    create(url, &env.admin, &json!({ "id": "vase", "stock": 100 })).await;
    let (hook, held) = receiver().await;
    let created = Client::new()
        .post(format!("{url}/v1/webhooks"))
        .bearer_auth(&env.admin)
        .json(&json!({ "url": hook, "kinds": ["order.held"] }))
        .send()
        .await
        .unwrap();
    assert_eq!(created.status(), 201);

    let mut placed = HashSet::new();
    let mut publisher = Serving::in_the_background(env.dir(), "publisher");
    for key in 0..12 {
        placed.insert(env.hold(url, "vase", &format!("key-{key}")).await);
    }
    has(&held, 2).await;
    publisher.kill();
    for key in 12..20 {
        placed.insert(env.hold(url, "vase", &format!("key-{key}")).await);
    }
    let _second = Serving::in_the_background(env.dir(), "publisher");
    assert_eq!(has(&held, placed.len()).await, placed);
}
