//! The environment of a test: Redis (one server or a cluster), a ledger (SQLite or PostgreSQL), a
//! recorder, and any number of order services.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::BuyerId;
use ledger::PoolSettings;
use lock::RedisLockBuilder;
use order::{
    Admin, BuyerKey, Credentials, Engine, EngineSettings, Limits, PaymentKey, PaymentKeys,
    TokenPolicy,
};
use reconciler::ReconcilerSettings;
use recorder::RecorderSettings;
use reqwest::{Body, Client, Method, RequestBuilder};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use stock::{RedisSettings, Stock, StockSettings};
use testkit::{
    Backend, Database, eventually, eventually_some, fresh_item_id, in_time, shared_cluster,
    shared_redis, timeout,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::described::assert_described;

/// Key that the payment provider signs with.
pub const PAYMENT_SECRET: &[u8] = b"a secret of the payment provider";

pub fn payment_keys() -> PaymentKeys {
    let stripe = |secret: &str| PaymentKey::new(secret.as_bytes(), Duration::from_secs(300));
    PaymentKeys {
        provider: Some(payment_key()),
        stripe: STRIPE_SECRETS.map(stripe).to_vec(),
    }
}

/// The secret of Stripe's endpoint, and the one before it.
pub const STRIPE_SECRETS: [&str; 2] = ["whsec_new", "whsec_old"];

pub fn payment_key() -> PaymentKey {
    PaymentKey::new(PAYMENT_SECRET, Duration::from_secs(300))
}

pub const SECRET: &[u8] = b"a secret of the shop's login";
pub const ADMIN: &str = "an-admin-token-of-the-shop";

/// The stores of the services.
#[derive(Debug, Clone, Copy)]
pub enum Stores {
    /// One Redis server, SQLite.
    Small,
    /// One Redis server, PostgreSQL.
    Postgres,
    /// A cluster of three masters, PostgreSQL.
    Cluster,
}

impl Stores {
    pub const ALL: [Self; 3] = [Self::Small, Self::Postgres, Self::Cluster];
}

/// How an environment differs from the default one.
#[derive(Clone)]
pub struct Options {
    pub stores: Stores,
    /// Number of order services.
    pub instances: usize,
    pub recorder: bool,
    /// Without a reconciler no hold expires, no unit moves and nothing is repaired.
    pub reconciler: Option<ReconcilerSettings>,
    /// How long the sold-out cache is valid.
    pub sold_out_cache_ttl: Duration,
    /// Short only where an order must time out.
    pub order_timeout: Duration,
    /// The pool of the ledger as a service has it, for a test in which no connection can be had.
    /// Default: a step waits for one as long as it takes on a busy machine.
    pub pool: Option<PoolSettings>,
    /// How long an archived item keeps its orders at least.
    pub drop_retention: Duration,
    pub limits: Limits,
    /// Admins besides the one with [`ADMIN`].
    pub admins: Vec<Admin>,
    /// URL of a Redis server that the test may break. Default: the shared one.
    pub redis_url: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stores: Stores::Small,
            instances: 1,
            recorder: true,
            reconciler: None,
            sold_out_cache_ttl: Duration::from_millis(100),
            order_timeout: timeout(),
            pool: None,
            drop_retention: EngineSettings::default().drop_retention,
            limits: patient(),
            admins: Vec::new(),
            redis_url: None,
        }
    }
}

/// The default limits, with times that no busy machine reaches.
pub fn patient() -> Limits {
    Limits {
        head_timeout: timeout(),
        idle_timeout: timeout(),
        request_timeout: timeout(),
        body_timeout: timeout(),
        write_timeout: timeout(),
        // A connection that is not drained is a fault, and not only slow.
        drain_timeout: 2 * timeout(),
        ..Limits::default()
    }
}

impl Options {
    /// With this number of order services.
    pub fn with_instances(self, instances: usize) -> Self {
        Self { instances, ..self }
    }

    /// With a reconciler that polls often. It repairs faults so late that a test can observe them,
    /// and moves no units between segments.
    pub fn reconciled() -> Self {
        let settings = ReconcilerSettings {
            poll_interval: Duration::from_millis(30),
            expiry_interval: Duration::from_millis(20),
            return_delay: Duration::from_millis(300),
            confirmation_period: Duration::from_secs(10),
            balance: false,
            ..ReconcilerSettings::default()
        };
        Self {
            reconciler: Some(settings),
            ..Self::default()
        }
    }
}

pub struct TestEnv {
    pub urls: Vec<String>,
    pub engines: Vec<Arc<Engine>>,
    pub redis_url: String,
    pub database_url: String,
    client: Client,
    items: Mutex<Vec<String>>,
    stop_serving: CancellationToken,
    stop_recording: CancellationToken,
    serving: Vec<JoinHandle<()>>,
    recording: Mutex<Vec<JoinHandle<()>>>,
    pub database: Database,
}

/// What a test is given.
pub type Env = Arc<TestEnv>;

/// Runs a test in an environment, and audits its items afterwards.
pub async fn open<F: Future<Output = ()>>(options: Options, test: impl FnOnce(Arc<TestEnv>) -> F) {
    let env = Arc::new(TestEnv::new(options).await);
    test(Arc::clone(&env)).await;
    Arc::into_inner(env)
        .expect("the test has ended")
        .close()
        .await;
}

/// [`open`] on every combination of stores.
pub async fn open_each<F: Future<Output = ()>>(options: Options, test: impl Fn(Arc<TestEnv>) -> F) {
    for stores in Stores::ALL {
        eprintln!("on {stores:?}");
        open(
            Options {
                stores,
                ..options.clone()
            },
            &test,
        )
        .await;
    }
}

/// On SQLite and on PostgreSQL. The lists do not read Redis.
pub async fn on_both_ledgers<F: Future<Output = ()>>(
    options: Options,
    test: impl Fn(Arc<TestEnv>) -> F,
) {
    for stores in [Stores::Small, Stores::Postgres] {
        eprintln!("on {stores:?}");
        let options = Options {
            stores,
            ..options.clone()
        };
        open(options, &test).await;
    }
}

impl TestEnv {
    async fn new(options: Options) -> Self {
        let (redis_url, backend) = match options.stores {
            Stores::Small => (shared_redis().await.url(), Backend::Sqlite),
            Stores::Postgres => (shared_redis().await.url(), Backend::Postgres),
            Stores::Cluster => (shared_cluster().await.url(), Backend::Postgres),
        };
        let database = Database::new(backend).await;
        let redis_url = options.redis_url.clone().unwrap_or(redis_url);
        let mut env = Self {
            urls: Vec::new(),
            engines: Vec::new(),
            redis_url,
            database_url: database.url.clone(),
            client: Client::new(),
            items: Mutex::default(),
            stop_serving: CancellationToken::new(),
            stop_recording: CancellationToken::new(),
            serving: Vec::new(),
            recording: Mutex::default(),
            database,
        };
        for _ in 0..options.instances {
            env.start_instance(&options).await;
        }
        if options.recorder {
            env.start_recorder();
        }
        if let Some(settings) = options.reconciler {
            env.start_reconciler(settings).await;
        }
        env
    }

    async fn start_instance(&mut self, options: &Options) {
        let ledger = match options.pool {
            Some(pool) => ledger::connect_with(&self.database.url, pool)
                .await
                .unwrap(),
            None => self.database.ledger().await,
        };
        // A server that the test breaks must time out soon, and no other server may.
        let times = match options.redis_url {
            Some(_) => Duration::from_secs(1),
            None => timeout(),
        };
        let redis = RedisSettings {
            connect_timeout: times,
            response_timeout: times,
            ..RedisSettings::new(&self.redis_url)
        };
        let stock = StockSettings {
            redis,
            sold_out_cache_ttl: options.sold_out_cache_ttl,
            ..StockSettings::new("")
        };
        let stock = Stock::connect(stock).await.unwrap();
        let engine = Engine::new(
            stock,
            ledger,
            EngineSettings {
                order_timeout: options.order_timeout,
                drop_retention: options.drop_retention,
                has_drop_exports: options
                    .reconciler
                    .as_ref()
                    .is_none_or(|settings| settings.drop_exports.is_some()),
            },
        );
        let credentials = Credentials::new(&BuyerKey::Secret(SECRET.into()), ADMIN).unwrap();
        let admins = options.admins.iter().cloned();
        let credentials = admins.fold(credentials, Credentials::or_admin);
        let router = order::router(
            Arc::clone(&engine),
            Arc::new(credentials),
            payment_keys(),
            order::metrics::install(),
            &options.limits,
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.urls
            .push(format!("http://{}", listener.local_addr().unwrap()));
        let (limits, stop) = (options.limits.clone(), self.stop_serving.clone());
        self.serving.push(tokio::spawn(async move {
            order::serve(listener, router, &limits, stop).await
        }));
        self.serving.push(tokio::spawn(order::watch_overdue(
            Arc::clone(&engine),
            self.stop_recording.clone(),
        )));
        self.serving.push(tokio::spawn(order::watch_stores(
            Arc::clone(&engine),
            self.stop_recording.clone(),
        )));
        eventually("a first look at the stores", async || {
            engine.ready().is_ok()
        })
        .await;
        self.engines.push(engine);
    }

    /// Starts a recorder over the first instance's stores.
    pub fn start_recorder(&self) {
        let (stock, ledger) = (
            Arc::clone(&self.engines[0].stock),
            Arc::clone(&self.engines[0].ledger),
        );
        let recorder = recorder::run(
            stock,
            ledger,
            RecorderSettings::default(),
            self.stop_recording.clone(),
        );
        self.recording.lock().unwrap().push(tokio::spawn(recorder));
    }

    /// Starts a reconciler over the first instance's stores. Items have distinct names, so one
    /// server can keep the locks of all tests.
    pub async fn start_reconciler(&self, settings: ReconcilerSettings) {
        let (stock, ledger) = (
            Arc::clone(&self.engines[0].stock),
            Arc::clone(&self.engines[0].ledger),
        );
        let lock = Arc::new(
            RedisLockBuilder::new(shared_redis().await.url())
                .build()
                .unwrap(),
        );
        let reconciler =
            reconciler::run(stock, ledger, lock, settings, self.stop_recording.clone());
        self.recording
            .lock()
            .unwrap()
            .push(tokio::spawn(reconciler));
    }

    async fn close(self) {
        let items = self.items.lock().unwrap().clone();
        for item in items {
            self.settled_audit(&item).await;
        }
        self.stop_serving.cancel();
        self.stop_recording.cancel();
        for task in self
            .serving
            .into_iter()
            .chain(self.recording.into_inner().unwrap())
        {
            in_time("the end of a service", task).await.unwrap();
        }
        for engine in self.engines {
            engine.stock.shutdown().await;
        }
    }

    /// The full audit once no units are in flight. It must find no drift, and neither must the one
    /// that reads no orders.
    pub async fn settled_audit(&self, item: &str) -> Value {
        self.settled_by(&format!("/v1/items/{item}/audit")).await;
        self.settled_by(&format!("/v1/items/{item}/audit?full=true"))
            .await
    }

    /// The audit at this path once no units are in flight. It must find no drift.
    pub async fn settled_by(&self, audit: &str) -> Value {
        let what = format!("the end of the transit of all units: {audit}");
        eventually_some(&what, async || {
            let answer = self.admin_gets(audit).await;
            if answer.status == 503 {
                // On a busy machine the audit may exceed its time limit.
                answer.is(503, "unavailable");
                return None;
            }
            let audit = answer.body;
            assert_eq!(
                (&audit["drift"], &audit["oversold"]),
                (&json!(0), &json!(0)),
                "{audit:#}"
            );
            let in_transit = ["in_flight", "returning", "in_transit"];
            if !in_transit.iter().all(|units| audit[units] == 0) {
                return None;
            }
            let units =
                ["available", "held", "confirmed"].map(|units| audit[units].as_u64().unwrap());
            assert_eq!(
                units.iter().sum::<u64>(),
                audit["stock"].as_u64().unwrap(),
                "{audit:#}"
            );
            Some(audit)
        })
        .await
    }

    pub fn stop_serving(&self) {
        self.stop_serving.cancel();
    }

    /// The audit from the stores, without HTTP, once no units are in flight.
    pub async fn audit_without_http(&self, item: &str) -> audit::AuditReport {
        let engine = &self.engines[0];
        let what = format!("the recording of all orders of {item}");
        eventually_some(&what, async || {
            let (stock, ledger, id) = (&engine.stock, &*engine.ledger, item.parse().unwrap());
            let audited = audit::full_report(stock, ledger, &id).await;
            let report = audited.unwrap().unwrap();
            (report.in_flight == 0).then_some(report)
        })
        .await
    }

    /// Whether the next audit can read only what has changed since the last one of all orders.
    pub async fn has_sums(&self, item: &str) -> bool {
        let ledger = &self.engines[0].ledger;
        let sums = ledger.last_sums(&item.parse().unwrap()).await;
        sums.unwrap().is_some()
    }

    /// Excludes an item from the audit at the end, because the test has audited it itself.
    pub fn forget_item(&self, item: &str) {
        self.items.lock().unwrap().retain(|id| id != item);
    }

    pub fn url(&self, instance: usize, path: &str) -> String {
        format!("{}{path}", self.urls[instance])
    }

    /// Waits until the first instance says that it could place no order, and returns what it says.
    pub async fn becomes_unready(&self) -> Answer {
        let unready = eventually_some("a service that is not ready", async || {
            let answer = self.anyone_gets("/readyz").await;
            (answer.status != 200).then_some(answer)
        });
        unready.await
    }

    /// Waits until the first instance says that it could place an order.
    pub async fn becomes_ready(&self) {
        eventually("a service that is ready", async || {
            let answer = self.anyone_gets("/readyz").await;
            answer.status == 200
        })
        .await;
    }

    /// A request to one of the instances.
    pub fn at(&self, instance: usize, method: Method, path: &str) -> RequestBuilder {
        self.client
            .request(method, self.url(instance, path))
            .timeout(timeout())
    }

    pub fn anyone(&self, method: Method, path: &str) -> RequestBuilder {
        self.at(0, method, path)
    }

    pub fn admin(&self, method: Method, path: &str) -> RequestBuilder {
        self.anyone(method, path).bearer_auth(ADMIN)
    }

    pub fn buyer(&self, name: &str, method: Method, path: &str) -> RequestBuilder {
        self.anyone(method, path).bearer_auth(token(name))
    }

    pub async fn anyone_gets(&self, path: &str) -> Answer {
        Answer::of(self.anyone(Method::GET, path)).await
    }

    pub async fn admin_gets(&self, path: &str) -> Answer {
        Answer::of(self.admin(Method::GET, path)).await
    }

    pub async fn admin_posts(&self, path: &str, body: &Value) -> Answer {
        Answer::of(self.admin(Method::POST, path).json(body)).await
    }

    pub async fn buyer_gets(&self, name: &str, path: &str) -> Answer {
        Answer::of(self.buyer(name, Method::GET, path)).await
    }

    /// Creates an item with a fresh name and returns the name.
    pub async fn create(&self, mut item: Value) -> String {
        let id = fresh_item_id().to_string();
        item["id"] = json!(id);
        let created = self.admin_posts("/v1/items", &item).await;
        assert_eq!(created.status, 201, "{created:?}");
        self.items.lock().unwrap().push(id.clone());
        id
    }

    /// The request of an order to one of the instances.
    pub fn order_at(
        &self,
        instance: usize,
        item: &str,
        buyer: &str,
        key: &str,
        quantity: u32,
    ) -> RequestBuilder {
        let request = self
            .client
            .post(self.url(instance, &format!("/v1/items/{item}/orders")));
        let request = request
            .bearer_auth(token(buyer))
            .header("Idempotency-Key", key)
            .timeout(timeout());
        request.json(&json!({ "quantity": quantity }))
    }

    pub async fn order(&self, item: &str, buyer: &str, key: &str, quantity: u32) -> Answer {
        Answer::of(self.order_at(0, item, buyer, key, quantity)).await
    }
}

/// The response to a request.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
    /// What was asked, for a test that asks many things and fails.
    request: String,
}

impl Answer {
    pub async fn of(request: RequestBuilder) -> Self {
        let (client, request) = request.build_split();
        let request = request.unwrap();
        let (method, path) = (request.method().clone(), request.url().path().to_owned());
        let sent = request.body().and_then(Body::as_bytes).unwrap_or_default();
        // Not all headers: one of them is a token.
        let named = ["idempotency-key", "if-match"];
        let named = named.map(|name| request.headers().get_all(name).iter().collect::<Vec<_>>());
        let asked = format!(
            "{method} {} {named:?} {}",
            request.url(),
            String::from_utf8_lossy(sent)
        );
        let response = client.execute(request).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        assert_described(&method, &path, status, &body);
        Self {
            status,
            headers,
            body,
            request: asked,
        }
    }

    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The id of what was placed or shown.
    pub fn id(&self) -> String {
        self.body["id"].as_str().expect("an id").to_owned()
    }

    /// The rows of a page.
    pub fn rows(&self) -> &Vec<Value> {
        self.body["data"].as_array().expect("a page")
    }

    /// Asserts that it is a problem with this status and code.
    #[track_caller]
    pub fn is(&self, status: u16, code: &str) -> &Self {
        assert_eq!((self.status, self.code()), (status, code), "{self:?}");
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{self:?}"
        );
        assert_eq!(self.body["status"], status, "{self:?}");
        self
    }

    /// Asserts that the request was refused because of this field.
    #[track_caller]
    pub fn blames(&self, field: &str) -> &Self {
        self.is_of(400, "invalid_request", field)
    }

    /// Asserts that it is a problem with this status and code, and of this field.
    #[track_caller]
    pub fn is_of(&self, status: u16, code: &str, field: &str) -> &Self {
        self.is(status, code);
        assert_eq!(self.body["field"], field, "{}: {self:?}", self.request);
        self
    }

    /// Asserts that the order is in this state.
    #[track_caller]
    pub fn is_now(&self, state: &str) -> &Self {
        assert_eq!(
            (self.status, &self.body["state"]),
            (200, &json!(state)),
            "{self:?}"
        );
        self
    }

    #[track_caller]
    pub fn is_held(&self) -> &Self {
        assert_eq!(
            (self.status, &self.body["state"]),
            (201, &json!("held")),
            "{self:?}"
        );
        self
    }
}

/// The answer to a request that is repeated as long as its outcome is unknown. For services whose
/// time limit is so short that a busy machine exceeds it.
pub async fn known(mut request: impl AsyncFnMut() -> Answer) -> Answer {
    eventually_some("a known outcome", async || {
        let answer = request().await;
        (answer.status != 503).then_some(answer)
    })
    .await
}

/// Seconds of a hold whose end comes in the test, and of longer ones for a busy machine, on which it may
/// have ended before an order is answered.
pub const SHORT_HOLDS: [u32; 3] = [1, 8, 64];

/// The answer to an order that is held, however late a busy machine decides it.
pub async fn held(env: &TestEnv, item: &str, buyer: &str) -> Answer {
    let order = known(async || env.order(item, buyer, "k", 1).await).await;
    order.is_held();
    order
}

/// Waits until a session of the PostgreSQL database waits for a lock.
pub async fn a_session_waits(env: &TestEnv) {
    let mut connection = PgConnection::connect(&env.database_url).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually("a session that waits for a lock", async || {
        let waiting = sqlx::query_scalar::<_, i64>(waiting);
        waiting.fetch_one(&mut connection).await.unwrap() > 0
    })
    .await;
}

pub fn token(buyer: &str) -> String {
    order::mint_buyer_token(
        SECRET,
        &BuyerId::new(buyer).unwrap(),
        Duration::from_secs(3600),
        &TokenPolicy::default(),
    )
    .unwrap()
}
