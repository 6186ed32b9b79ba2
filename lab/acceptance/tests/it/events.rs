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
    process::{Serving, create, stockade},
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

/// The ids of the orders in the Redis stream, in its order.
async fn streamed(env: &TestEnv) -> Vec<String> {
    let client = redis::Client::open(env.redis.url()).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let all = redis::cmd("XRANGE").arg(&["shop", "-", "+"]).to_owned();
    let all: redis::streams::StreamRangeReply = all.query_async(&mut redis).await.unwrap();
    let events = all.ids.iter().map(|entry| {
        let event: Value = serde_json::from_str(&entry.get::<String>("event").unwrap()).unwrap();
        assert_eq!(event["id"], entry.get::<String>("id").unwrap());
        event
    });
    let held = events.filter(|event| event["type"] == "stockade.order.held");
    let orders = held.flat_map(|event| event["data"]["orders"].as_array().unwrap().clone());
    orders
        .map(|order| order.as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_publisher_loses_no_event_of_a_sink() {
    let env = TestEnv::new().await;
    let mut settings = OpenOptions::new()
        .append(true)
        .open(env.dir().join("stockade.toml"))
        .unwrap();
    let url = env.redis.url();
    writeln!(
        settings,
        "events_redis = \"{url}\"\nevents_redis_stream = \"shop\""
    )
    .unwrap();
    let roles = ["--roles", "order,recorder"];
    let service = Serving::serve(env.dir(), free_port().await, &roles).await;
    let url = &service.url;
    create(url, &env.admin, &json!({ "id": "vase", "stock": 100 })).await;
    let mut publisher = Serving::in_the_background(env.dir(), "publisher");
    let mut placed = Vec::new();
    for key in 0..12 {
        placed.push(env.hold(url, "vase", &format!("key-{key}")).await);
    }
    while streamed(&env).await.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    publisher.kill();
    for key in 12..20 {
        placed.push(env.hold(url, "vase", &format!("key-{key}")).await);
    }
    let _second = Serving::in_the_background(env.dir(), "publisher");
    let mut orders = Vec::new();
    // The killed publisher's lease ends first.
    for _ in 0..1200 {
        orders = streamed(&env).await;
        let mut seen = HashSet::new();
        orders.retain(|order| seen.insert(order.clone()));
        if orders.len() >= placed.len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(orders, placed);
}

#[test]
fn a_sink_whose_url_is_wrong_is_refused_by_name_and_without_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let config = |variable: &str, value: &str| {
        let output = stockade(folder.path())
            .arg("config")
            .env(variable, value)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(!text.contains("hunter2"), "{text}");
        (output.status.success(), text)
    };
    let wrong = [
        ("STOCKADE_EVENTS_REDIS", "http://user:hunter2@127.0.0.1"),
        (
            "STOCKADE_EVENTS_REDIS",
            "redis://user:hunter2@127.0.0.1:port",
        ),
        ("STOCKADE_EVENTS_REDIS_ENTRIES_MAX", "5"),
        (
            "STOCKADE_EVENTS_NATS",
            "nats://a:1,http://user:hunter2@127.0.0.1",
        ),
        ("STOCKADE_EVENTS_NATS", "nats://user:hunter2@127.0.0.1:port"),
        ("STOCKADE_EVENTS_NATS_SUBJECT", "a.*"),
        ("STOCKADE_EVENTS_AMQP", "amqp://user:hunter2@127.0.0.1:port"),
    ];
    for (variable, value) in wrong {
        let (accepted, text) = config(variable, value);
        assert!(!accepted && text.contains(variable), "{text}");
        assert!(
            text.contains("expected") || text.contains("not compiled in"),
            "{text}"
        );
    }
    let right = [
        (
            "STOCKADE_EVENTS_REDIS",
            "redis://user:hunter2@127.0.0.1:6379",
        ),
        (
            "STOCKADE_EVENTS_NATS",
            "nats://user:hunter2@a:4222,nats://user:hunter2@b:4222",
        ),
        (
            "STOCKADE_EVENTS_AMQP",
            "amqp://user:hunter2@127.0.0.1:5672/%2f",
        ),
    ];
    for (variable, value) in right {
        let (accepted, text) = config(variable, value);
        let name = variable.rsplit('_').next().unwrap().to_lowercase();
        let missing = format!(
            "{variable}: {name} is not compiled in; build stockade with `--features {name}`"
        );
        assert!(accepted || text.contains(&missing), "{text}");
    }
}
