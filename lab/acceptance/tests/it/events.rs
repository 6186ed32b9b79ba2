//! Events of real processes: a publisher that is killed loses none.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Json, Router, extract::State, routing::post};
use reqwest::Client;
use serde_json::{Value, json};
use testbed::free_port;
use testkit::{eventually, eventually_some};
use tokio::net::TcpListener;

use crate::{
    process::{AT_LISTEN, Serving, stockade},
    test_env::TestEnv,
};

/// Another publisher waits so long for one that was killed: shorter than the default, for the
/// test's sake.
const SHORT_LEASE: &str = "publisher_lease_ms = \"4000\"";

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
    eventually_some(&format!("the events of {orders} orders"), async || {
        let ids: HashSet<_> = held.lock().unwrap().iter().cloned().collect();
        (ids.len() >= orders).then_some(ids)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_publisher_loses_no_event() {
    let env = TestEnv::new().await;
    env.set(&format!("webhooks_allow_private = \"true\"\n{SHORT_LEASE}"));
    let roles = ["--roles", "order,recorder"];
    let service = env.serve(&roles).await;
    let url = &service.url;
    env.sells(url, "vase", 100).await;
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

/// `serve` without a word about private addresses: only `up` allows them.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_to_an_address_of_the_own_network_is_refused_by_serve() {
    let env = TestEnv::new().await;
    let service = env.serve(&[]).await;
    let webhooks = format!("{}/v1/webhooks", service.url);
    let (client, admin) = (Client::new(), &env.admin);
    let (hook, held) = receiver().await;
    let port = hook.rsplit(':').next().unwrap().to_owned();
    let hosts = [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "0.0.0.0",
        "2130706433",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "[fe80::1]",
        "[fd00::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:10.0.0.1]",
        "[64:ff9b::7f00:1]",
    ];
    let https = hosts.map(|host| format!("https://{host}:{port}"));
    for url in https.iter().chain([&hook]) {
        let request = client.post(&webhooks).bearer_auth(admin);
        let refused = request.json(&json!({ "url": url })).send().await.unwrap();
        let status = refused.status();
        let problem: Value = refused.json().await.unwrap();
        assert_eq!(
            (
                status.as_u16(),
                &problem["code"],
                &problem["errors"][0]["pointer"]
            ),
            (400, &json!("invalid_request"), &json!("/url")),
            "{url}: {problem}"
        );
    }
    let list = client.get(&webhooks).bearer_auth(admin).send().await;
    let list: Value = list.unwrap().json().await.unwrap();
    assert_eq!(list, json!({ "data": [] }));
    assert!(held.lock().unwrap().is_empty());
}

/// The lines of the metrics that name the webhook.
async fn lags_of(webhook: &str, url: &str) -> Vec<String> {
    let metrics = reqwest::get(format!("{url}/metrics")).await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let of_webhook = |line: &&str| line.contains(webhook);
    metrics
        .lines()
        .filter(of_webhook)
        .map(ToOwned::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lag_of_a_removed_webhook_is_not_shown_any_more() {
    let env = TestEnv::new().await;
    env.set("webhooks_allow_private = \"true\"");
    let service = env.serve(&[AT_LISTEN]).await;
    let url = &service.url;
    env.sells(url, "vase", 100).await;
    // Nothing listens there, so the lag stays.
    let hook = format!("http://127.0.0.1:{}", free_port().await);
    let created = Client::new()
        .post(format!("{url}/v1/webhooks"))
        .bearer_auth(&env.admin)
        .json(&json!({ "url": hook }));
    let created: Value = created.send().await.unwrap().json().await.unwrap();
    let id = created["id"].as_str().unwrap();
    env.hold(url, "vase", "k").await;
    for (is_shown, wait_for) in [(true, "the lag"), (false, "its end")] {
        let lags = eventually_some(wait_for, async || {
            let lags = lags_of(id, url).await;
            let has_lag = lags
                .iter()
                .any(|line| line.starts_with("stockade_webhook_lag_seconds"));
            (has_lag == is_shown).then_some(lags)
        })
        .await;
        assert_eq!(!lags.is_empty(), is_shown, "{wait_for}: {lags:?}");
        let remove = Client::new().delete(format!("{url}/v1/webhooks/{id}"));
        let removed = remove.bearer_auth(&env.admin).send().await.unwrap();
        assert_eq!(removed.status(), if is_shown { 204 } else { 404 });
    }
}

/// The ids of the orders in the Redis stream, in its order.
async fn streamed(env: &TestEnv) -> Vec<String> {
    let mut redis = testbed::patient_connection(&env.redis.url()).await.unwrap();
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
    let url = env.redis.url();
    let sink = format!("events_redis = \"{url}\"\nevents_redis_stream = \"shop\"");
    env.set(&format!("{sink}\n{SHORT_LEASE}"));
    let roles = ["--roles", "order,recorder"];
    let service = env.serve(&roles).await;
    let url = &service.url;
    env.sells(url, "vase", 100).await;
    let mut publisher = Serving::in_the_background(env.dir(), "publisher");
    let mut placed = Vec::new();
    for key in 0..12 {
        placed.push(env.hold(url, "vase", &format!("key-{key}")).await);
    }
    eventually("a first event", async || !streamed(&env).await.is_empty()).await;
    publisher.kill();
    for key in 12..20 {
        placed.push(env.hold(url, "vase", &format!("key-{key}")).await);
    }
    let _second = Serving::in_the_background(env.dir(), "publisher");
    // The killed publisher's lease ends first.
    let orders = eventually_some("the events of all orders", async || {
        let mut orders = streamed(&env).await;
        let mut seen = HashSet::new();
        orders.retain(|order| seen.insert(order.clone()));
        (orders.len() >= placed.len()).then_some(orders)
    })
    .await;
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
