//! SIGKILL for services that are at work.

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use testbed::{Postgres, Redis};
use testkit::{eventually, timeout};

use crate::process::{Serving, create, order, settled_audit, token};

/// An acknowledged order: item, number of the buyer, key, and the answer.
pub struct Acknowledged {
    item: String,
    buyer: usize,
    key: String,
    body: Value,
}

/// A crowd: every buyer orders from each item, one order after the other.
pub struct Rush<'a> {
    pub url: &'a str,
    pub items: &'a [&'a str],
    pub tokens: &'a [String],
    /// Orders of each buyer from each item.
    pub orders: usize,
    /// Whether to try an order again until there is an answer.
    pub insists: bool,
}

impl Rush<'_> {
    /// Orders while `fault` runs. Returns the acknowledged orders.
    pub async fn run(&self, fault: impl AsyncFnOnce(&AtomicUsize)) -> Vec<Acknowledged> {
        let (client, done) = (Client::new(), Arc::new(AtomicUsize::new(0)));
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let mut buyers = tokio::task::JoinSet::new();
        for (buyer, token) in self.tokens.iter().enumerate() {
            for item in self.items {
                let (client, done, acknowledged) =
                    (client.clone(), Arc::clone(&done), Arc::clone(&acknowledged));
                let (url, item, token) = (self.url.to_owned(), (*item).to_owned(), token.clone());
                let (orders, insists) = (self.orders, self.insists);
                buyers.spawn(async move {
                    for key in (0..orders).map(|number| format!("key-{number}")) {
                        if let Some(body) =
                            attempt(insists, || order(&client, &url, &item, &token, &key)).await
                        {
                            acknowledged.lock().unwrap().push(Acknowledged {
                                item: item.clone(),
                                buyer,
                                key,
                                body,
                            });
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        }
        fault(&done).await;
        while buyers.join_next().await.is_some() {}
        Arc::into_inner(acknowledged).unwrap().into_inner().unwrap()
    }
}

/// Sends the request once, or repeats it with its key until a service answers, as a client must.
async fn attempt(insists: bool, request: impl Fn() -> RequestBuilder) -> Option<Value> {
    let until = Instant::now() + timeout();
    loop {
        if let Ok(response) = request().send().await {
            let success = response.status().is_success();
            if let Ok(body) = response.json().await
                && success
            {
                return Some(body);
            }
        }
        if !insists || Instant::now() > until {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns when this many orders have been acknowledged.
pub async fn wait_for(done: &AtomicUsize, orders: usize) {
    eventually(&format!("the answers to {orders} orders"), async || {
        done.load(Ordering::Relaxed) >= orders
    })
    .await;
}

/// Repeats every acknowledged order. The answers must be equal.
pub async fn replay(url: &str, tokens: &[String], acknowledged: &[Acknowledged]) {
    let client = Client::new();
    let mut ids = HashMap::new();
    for Acknowledged {
        item,
        buyer,
        key,
        body,
    } in acknowledged
    {
        let response = order(&client, url, item, &tokens[*buyer], key)
            .send()
            .await
            .unwrap();
        assert!(
            response.status().is_success(),
            "{item} {key}: {}",
            response.status()
        );
        assert_eq!(response.headers()["idempotent-replayed"], "true");
        assert_eq!(&response.json::<Value>().await.unwrap(), body);
        let before = ids.insert(body["id"].clone(), (item, buyer, key));
        assert!(before.is_none(), "one id, two orders");
    }
}

/// Redis, PostgreSQL, and a folder whose settings name them.
struct TestEnv {
    folder: tempfile::TempDir,
    postgres_url: String,
    tokens: Vec<String>,
    admin: String,
    _redis: Redis,
    _postgres: Postgres,
}

impl TestEnv {
    async fn new() -> Self {
        let (redis, postgres) = (
            Redis::start().await.unwrap(),
            Postgres::start().await.unwrap(),
        );
        let folder = tempfile::tempdir().unwrap();
        let postgres_url = postgres.create_database("crashes").await.unwrap();
        let settings = format!(
            "redis_url = \"{}\"\ndatabase_url = \"{postgres_url}\"\njwt_secret = \"a secret of the login\"\nadmin_token = \"a token of the admins\"\n",
            redis.url()
        );
        std::fs::write(folder.path().join("stockade.toml"), settings).unwrap();
        let tokens = (0..16)
            .map(|buyer| token(folder.path(), &["buyer", &format!("buyer-{buyer}")]))
            .collect();
        let admin = token(folder.path(), &["admin"]);
        Self {
            folder,
            postgres_url,
            tokens,
            admin,
            _redis: redis,
            _postgres: postgres,
        }
    }

    fn dir(&self) -> &Path {
        self.folder.path()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn order_services_and_recorders_that_are_killed_in_a_rush_lose_nothing() {
    let env = TestEnv::new().await;
    let port = testbed::free_port().await;
    let mut service = Serving::order_service(env.dir(), port).await;
    let mut recorder = Serving::recorder(env.dir());
    create(
        &service.url,
        &env.admin,
        &json!({ "id": "rush", "stock": 2000, "segments": 4 }),
    )
    .await;
    let url = service.url.clone();
    let rush = Rush {
        url: &url,
        items: &["rush"],
        tokens: &env.tokens,
        orders: 60,
        insists: true,
    };
    let acknowledged = rush
        .run(async |done| {
            for orders in [100, 250, 400] {
                wait_for(done, orders).await;
                recorder.kill();
                recorder = Serving::recorder(env.dir());
            }
            wait_for(done, 500).await;
            service.kill();
            service = Serving::order_service(env.dir(), port).await;
        })
        .await;
    assert_eq!(acknowledged.len(), 16 * 60, "who insists gets an answer");
    replay(&service.url, &env.tokens, &acknowledged).await;
    let report = settled_audit(env.dir(), "rush").await;
    assert_eq!(report["held"], acknowledged.len(), "{report:#}");
    assert_eq!(service.interrupt(), Some(0));
    assert_eq!(recorder.interrupt(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorder_that_is_killed_in_the_middle_of_its_transaction_records_everything_once() {
    let env = TestEnv::new().await;
    let service = Serving::order_service(env.dir(), testbed::free_port().await).await;
    let mut recorder = Serving::recorder(env.dir());
    create(
        &service.url,
        &env.admin,
        &json!({ "id": "vase", "stock": 100, "segments": 2 }),
    )
    .await;
    // Every recording now stops inside its transaction: it has claimed its segments and cannot
    // insert.
    let mut in_the_way = PgConnection::connect(&env.postgres_url).await.unwrap();
    sqlx::query("BEGIN").execute(&mut in_the_way).await.unwrap();
    sqlx::query("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        .execute(&mut in_the_way)
        .await
        .unwrap();
    let rush = Rush {
        url: &service.url,
        items: &["vase"],
        tokens: &env.tokens,
        orders: 1,
        insists: false,
    };
    let acknowledged = rush
        .run(async |_| {
            let mut watcher = PgConnection::connect(&env.postgres_url).await.unwrap();
            eventually("a recorder that waits", async || {
                let waiting: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'orders'::regclass")
                    .fetch_one(&mut watcher)
                    .await
                    .unwrap();
                waiting > 0
            })
            .await;
            recorder.kill();
            sqlx::query("COMMIT").execute(&mut in_the_way).await.unwrap();
            recorder = Serving::recorder(env.dir());
        })
        .await;
    assert_eq!(
        acknowledged.len(),
        env.tokens.len(),
        "they waited for the next recorder"
    );
    replay(&service.url, &env.tokens, &acknowledged).await;
    assert_eq!(settled_audit(env.dir(), "vase").await["held"], 16);
}
