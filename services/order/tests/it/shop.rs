//! A shop: Redis (one server or a cluster), a ledger (SQLite or PostgreSQL), a recorder, and any number of order services.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use domain::BuyerId;
use lock::RedisLockBuilder;
use order::{BuyerKey, Credentials, Engine, EngineSettings, Limits, PaymentKey};
use reconciler::ReconcilerSettings;
use recorder::RecorderSettings;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use stock::{RedisSettings, Stock, StockSettings};
use testbed::{Postgres, Redis, RedisCluster};
use tokio::{net::TcpListener, sync::OnceCell, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// What the payment provider signs with.
pub const PAYMENT_SECRET: &[u8] = b"a secret of the payment provider";

pub fn payment_key() -> PaymentKey {
    PaymentKey::new(PAYMENT_SECRET, Duration::from_secs(300))
}

pub const SECRET: &[u8] = b"a secret of the shop's login";
pub const ADMIN: &str = "an-admin-token-of-the-shop";

/// Where the stock is.
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

/// How a shop differs from the usual one.
#[derive(Clone)]
pub struct Options {
    pub stores: Stores,
    /// Order services.
    pub instances: usize,
    pub recorder: bool,
    /// `None`: nobody ends holds, carries units or mends.
    pub reconciler: Option<ReconcilerSettings>,
    /// How long an item may be called sold out without a look.
    pub hint_lifetime: Duration,
    pub order_within: Duration,
    pub limits: Limits,
    /// A Redis server of the test's own, that it may break.
    pub redis_url: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stores: Stores::Small,
            instances: 1,
            recorder: true,
            reconciler: None,
            hint_lifetime: Duration::from_millis(100),
            order_within: Duration::from_secs(5),
            limits: Limits::default(),
            redis_url: None,
        }
    }
}

impl Options {
    /// With a reconciler that looks often. What a test breaks by hand it leaves alone for long enough to be looked at, and units lie where
    /// they were put.
    pub fn reconciled() -> Self {
        let settings = ReconcilerSettings {
            round_every: Duration::from_millis(30),
            expire_every: Duration::from_millis(20),
            return_after: Duration::from_millis(300),
            confirm_for: Duration::from_secs(10),
            balance: false,
            ..ReconcilerSettings::default()
        };
        Self {
            reconciler: Some(settings),
            ..Self::default()
        }
    }
}

pub struct Shop {
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
    _folder: tempfile::TempDir,
}

/// Opens a shop for a test, and audits it afterwards.
pub async fn open<F: Future<Output = ()>>(options: Options, test: impl FnOnce(Arc<Shop>) -> F) {
    let shop = Arc::new(Shop::new(options).await);
    test(Arc::clone(&shop)).await;
    Arc::into_inner(shop)
        .expect("the test has ended")
        .close()
        .await;
}

/// The same on every combination of stores.
pub async fn open_each<F: Future<Output = ()>>(options: Options, test: impl Fn(Arc<Shop>) -> F) {
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

async fn redis() -> String {
    static REDIS: OnceCell<Redis> = OnceCell::const_new();
    REDIS
        .get_or_init(async || Redis::start().await.unwrap())
        .await
        .url()
}

async fn cluster() -> String {
    static CLUSTER: OnceCell<RedisCluster> = OnceCell::const_new();
    CLUSTER
        .get_or_init(async || RedisCluster::start(3).await.unwrap())
        .await
        .url()
}

async fn postgres() -> String {
    static POSTGRES: OnceCell<Postgres> = OnceCell::const_new();
    static DATABASES: AtomicU64 = AtomicU64::new(0);
    let postgres = POSTGRES
        .get_or_init(async || Postgres::start().await.unwrap())
        .await;
    postgres
        .create_database(&format!(
            "shop_{}",
            DATABASES.fetch_add(1, Ordering::Relaxed)
        ))
        .await
        .unwrap()
}

impl Shop {
    async fn new(options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (redis_url, database_url) = match options.stores {
            Stores::Small => (
                redis().await,
                format!("sqlite://{}", folder.path().join("ledger.db").display()),
            ),
            Stores::Postgres => (redis().await, postgres().await),
            Stores::Cluster => (cluster().await, postgres().await),
        };
        let redis_url = options.redis_url.clone().unwrap_or(redis_url);
        let mut shop = Self {
            urls: Vec::new(),
            engines: Vec::new(),
            redis_url,
            database_url: database_url.clone(),
            client: Client::new(),
            items: Mutex::default(),
            stop_serving: CancellationToken::new(),
            stop_recording: CancellationToken::new(),
            serving: Vec::new(),
            recording: Mutex::default(),
            _folder: folder,
        };
        for _ in 0..options.instances {
            shop.start_instance(&options, &database_url).await;
        }
        if options.recorder {
            shop.start_recorder();
        }
        if let Some(settings) = options.reconciler {
            shop.start_reconciler(settings).await;
        }
        shop
    }

    async fn start_instance(&mut self, options: &Options, database_url: &str) {
        let ledger = ledger::connect(database_url, 4).await.unwrap();
        ledger.migrate().await.unwrap();
        let redis = RedisSettings {
            response_timeout: Duration::from_millis(300),
            ..RedisSettings::new(&self.redis_url)
        };
        let stock = StockSettings {
            redis,
            hint_lifetime: options.hint_lifetime,
            ..StockSettings::new("")
        };
        let stock = Stock::connect(stock).await.unwrap();
        let engine = Engine::new(
            stock,
            ledger,
            EngineSettings {
                order_within: options.order_within,
            },
        );
        let credentials = Credentials::new(&BuyerKey::Secret(SECRET.into()), ADMIN).unwrap();
        let router = order::router(
            Arc::clone(&engine),
            Arc::new(credentials),
            Some(payment_key()),
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

    /// Starts a reconciler over the first instance's stores. Items have names of their own, so one server can keep the locks of all shops.
    pub async fn start_reconciler(&self, settings: ReconcilerSettings) {
        let (stock, ledger) = (
            Arc::clone(&self.engines[0].stock),
            Arc::clone(&self.engines[0].ledger),
        );
        let lock = Arc::new(RedisLockBuilder::new(redis().await).build().unwrap());
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
            task.await.unwrap();
        }
        for engine in self.engines {
            engine.stock.shutdown().await;
        }
    }

    /// The audit once nothing is in flight, which must come soon, and must be in order.
    pub async fn settled_audit(&self, item: &str) -> Value {
        for _ in 0..100 {
            let answer = Answer::of(self.admin(Method::GET, &format!("/items/{item}/audit"))).await;
            if answer.status == 503 {
                // A look that took too long on a busy machine is made again.
                answer.is(503, "unavailable");
                continue;
            }
            let audit = answer.body;
            assert_eq!(
                (&audit["drift"], &audit["oversold"]),
                (&json!(0), &json!(0)),
                "{audit:#}"
            );
            if ["in_flight", "returning", "in_transit"]
                .iter()
                .all(|units| audit[units] == 0)
            {
                let units =
                    ["available", "held", "confirmed"].map(|units| audit[units].as_u64().unwrap());
                assert_eq!(
                    units.iter().sum::<u64>(),
                    audit["stock"].as_u64().unwrap(),
                    "{audit:#}"
                );
                return audit;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("units of {item} are still on their way after five seconds");
    }

    pub fn stop_serving(&self) {
        self.stop_serving.cancel();
    }

    /// The audit straight from the stores, once nothing is in flight.
    pub async fn audit_without_http(&self, item: &str) -> audit::AuditReport {
        let engine = &self.engines[0];
        for _ in 0..100 {
            let report = audit::audit(&engine.stock, &*engine.ledger, &item.parse().unwrap())
                .await
                .unwrap()
                .unwrap();
            if report.in_flight == 0 {
                return report;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{item} is still in flight after five seconds");
    }

    /// The test has audited the item itself.
    pub fn forget_item(&self, item: &str) {
        self.items.lock().unwrap().retain(|id| id != item);
    }

    pub fn url(&self, instance: usize, path: &str) -> String {
        format!("{}{path}", self.urls[instance])
    }

    /// A request to one of the instances.
    pub fn at(&self, instance: usize, method: Method, path: &str) -> RequestBuilder {
        self.client
            .request(method, self.url(instance, path))
            .timeout(Duration::from_secs(30))
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

    /// Creates an item with a fresh name and returns the name.
    pub async fn create(&self, mut item: Value) -> String {
        static ITEMS: AtomicU64 = AtomicU64::new(0);
        let id = format!(
            "item-{}-{}",
            std::process::id(),
            ITEMS.fetch_add(1, Ordering::Relaxed)
        );
        item["id"] = json!(id);
        let response = self
            .admin(Method::POST, "/items")
            .json(&item)
            .send()
            .await
            .unwrap();
        assert_eq!(
            response.status(),
            StatusCode::CREATED,
            "{}",
            response.text().await.unwrap()
        );
        self.items.lock().unwrap().push(id.clone());
        id
    }

    /// The request of an order, at one of the instances.
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
            .post(self.url(instance, &format!("/items/{item}/orders")));
        let request = request
            .bearer_auth(token(buyer))
            .header("Idempotency-Key", key)
            .timeout(Duration::from_secs(30));
        request.json(&json!({ "quantity": quantity }))
    }

    pub async fn order(&self, item: &str, buyer: &str, key: &str, quantity: u32) -> Answer {
        Answer::of(self.order_at(0, item, buyer, key, quantity)).await
    }
}

/// What a request was answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Answer {
    pub async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        Self {
            status,
            headers,
            body: serde_json::from_str(&text).unwrap_or(Value::String(text)),
        }
    }

    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// That it is a problem with this status and code.
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

    /// That the order is in this state now.
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

pub fn token(buyer: &str) -> String {
    order::mint_buyer_token(
        SECRET,
        &BuyerId::new(buyer).unwrap(),
        Duration::from_secs(3600),
    )
    .unwrap()
}
