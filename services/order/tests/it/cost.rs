//! The cost of an order in the service, from the parsed request to the response: an upper bound of
//! allocations, and exact numbers of Redis commands and SQL statements. A slower design fails on
//! any machine.
//!
//! The tests call the API without sockets, on a separate thread. A recorder, if needed, runs
//! on another thread, whose allocations do not count. `docs/performance.md`, "Guards", has the
//! table.

use std::{
    num::NonZeroU32,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::body::Body;
use cost::{Bound, commands, fewest_allocations, statements};
use domain::{BuyerId, Durability, IdempotencyKey, Item, ItemId, ItemState, OrderId, Window};
use futures::future::join_all;
use http::{Request, Response, StatusCode, header};
use ledger::{ItemChange, PoolSettings};
use order::{Api, BuyerKey, Credentials, Engine, EngineSettings, Limits, Rate, RateLimits};
use recorder::RecorderSettings;
use stock::{RedisSettings, Stock, StockSettings};
use testbed::{Redis, eventually, timeout};
use tokio::{runtime::Runtime, task::unconstrained};
use tokio_util::sync::CancellationToken;

use crate::{
    durability::run,
    env::{ADMIN, SECRET, token},
};

/// A service without sockets, on one thread.
struct Service {
    runtime: Runtime,
    engine: Arc<Engine>,
    api: Api,
    item: Item,
    /// One token for each buyer, so that a repeat finds it in the token cache.
    tokens: Vec<String>,
    /// The first buyer of the next orders.
    first: usize,
    keys: u64,
    /// What each of the next orders says.
    order: &'static str,
    redis: Redis,
    database_url: String,
    _folder: tempfile::TempDir,
}

type Answers = Pin<Box<dyn Future<Output = Vec<Response<Body>>>>>;

const BUYERS: usize = 128;

/// Requests of a crowd that calls no store, or hardly any. Each is a future that is held until all
/// have ended, and one that calls a store shows.
const CROWD: usize = 1000;

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// The sold-out cache is valid for the whole test, and nothing times out: refreshes and repeats
/// would be counted, and depend on the clock. The subscriptions have begun: their commands would be
/// counted too.
pub async fn engine(redis_url: &str, database_url: &str) -> Arc<Engine> {
    let pool = PoolSettings {
        acquire_timeout: Some(timeout()),
        ..PoolSettings::new(4)
    };
    let ledger = ledger::connect_with(database_url, pool).await.unwrap();
    ledger.migrate().await.unwrap();
    // A request that times out is sent again, and would be counted twice.
    let redis = RedisSettings {
        connect_timeout: timeout(),
        response_timeout: timeout(),
        ..RedisSettings::new(redis_url)
    };
    let settings = StockSettings {
        redis,
        sold_out_cache_ttl: Duration::from_secs(24 * 3600),
        ..StockSettings::new("")
    };
    let before = subscribers(redis_url).await;
    let engine = Engine::new(
        Stock::connect(settings).await.unwrap(),
        ledger,
        EngineSettings {
            order_timeout: timeout(),
            ..EngineSettings::default()
        },
    );
    eventually("the subscriptions of the service", async || {
        subscribers(redis_url).await >= before + SUBSCRIPTIONS
    })
    .await;
    // A new subscription drops the sold-out cache, because it may have missed messages. The reply
    // to this comes after the replies to the subscriptions, so the cache is dropped by now.
    engine.stock.ready().await.unwrap();
    engine
}

/// Subscriptions of a service: to units that return, and to orders that are recorded.
const SUBSCRIPTIONS: usize = 2;

/// Clients of the server that have a subscription.
async fn subscribers(redis_url: &str) -> usize {
    let mut connection = testbed::patient_connection(redis_url).await.unwrap();
    let mut list = redis::cmd("CLIENT");
    let list = list.arg("LIST").arg("TYPE").arg("pubsub");
    let clients: String = list.query_async(&mut connection).await.unwrap();
    clients.lines().count()
}

fn item(stock: u64) -> Item {
    Item {
        id: ItemId::new("vase").unwrap(),
        title: "Vase".into(),
        stock,
        price: 1,
        currency: "EUR".into(),
        limit_per_buyer: None,
        segments: 1,
        window: Window::default(),
        hold_seconds: 600,
        max_hold_seconds: 600,
        max_per_order: None,
        waves: Vec::new(),
        new_price: None,
        durability: Durability::Recorded,
        state: ItemState::Open,
        epoch: 1,
        version: 1,
    }
}

impl Service {
    fn selling(stock: u64) -> Self {
        Self::selling_within(stock, &Limits::default())
    }

    /// Changes the item, as an admin does.
    fn changes(&self, change: &ItemChange) {
        let (engine, item) = (&self.engine, &self.item.id);
        let changed = engine.change_item(item, change, None, "test");
        let changed = self.runtime.block_on(changed);
        assert!(matches!(changed, Ok(Ok(_))), "{changed:?}");
    }

    fn selling_within(stock: u64, limits: &Limits) -> Self {
        let (runtime, folder) = (runtime(), tempfile::tempdir().unwrap());
        let database_url = format!("sqlite://{}", folder.path().join("ledger.db").display());
        let redis = runtime.block_on(Redis::start()).unwrap();
        let engine = runtime.block_on(engine(&redis.url(), &database_url));
        let api = Self::api_of(&engine, limits);
        let item = runtime
            .block_on(engine.create_item(&item(stock), "admin"))
            .unwrap()
            .unwrap();
        let tokens = (0..2 * BUYERS)
            .map(|buyer| token(&format!("buyer-{buyer}")))
            .collect();
        Self {
            runtime,
            engine,
            api,
            item,
            tokens,
            first: 0,
            keys: 0,
            order: r#"{"quantity":1}"#,
            redis,
            database_url,
            _folder: folder,
        }
    }

    fn api_of(engine: &Arc<Engine>, limits: &Limits) -> Api {
        let credentials = Credentials::new(&BuyerKey::Secret(SECRET.into()), ADMIN).unwrap();
        order::router(
            Arc::clone(engine),
            Arc::new(credentials),
            order::PaymentKeys::default(),
            order::metrics::install(),
            limits,
        )
    }

    /// Orders for one unit each, with new keys; they run when awaited. They are
    /// unconstrained, because tokio would otherwise run the batcher before all of them have reached
    /// it.
    fn orders(&mut self, count: usize, wait: bool) -> Answers {
        let answers: Vec<_> = (0..count)
            .map(|n| {
                let (api, request) = (self.api.clone(), self.request(n, wait));
                async move { api.answer(request).await }
            })
            .collect();
        self.keys += 1;
        Box::pin(unconstrained(join_all(answers)))
    }

    fn request(&self, buyer: usize, wait: bool) -> Request<Body> {
        let request = Request::post(format!("/v1/items/{}/orders", self.item.id))
            .header(
                header::AUTHORIZATION,
                format!("Bearer {}", self.tokens[self.first + buyer % BUYERS]),
            )
            .header(header::CONTENT_TYPE, "application/json")
            .header(
                "Idempotency-Key",
                format!("key-{}-{}", self.keys, buyer / BUYERS),
            );
        let request = if wait {
            request
        } else {
            request.header("Prefer", "respond-async")
        };
        request.body(Body::from(self.order)).unwrap()
    }

    /// One request with orders for one unit each, with new keys.
    fn batch(&mut self, count: usize) -> Answers {
        let line = |buyer: usize| {
            let key = format!("batch-{}", self.keys);
            serde_json::json!({ "buyer": format!("buyer-{buyer}"), "quantity": 1, "key": key })
        };
        let lines: Vec<_> = (0..count).map(line).collect();
        let request = Request::post(format!("/v1/items/{}/orders:batch", self.item.id))
            .header(header::AUTHORIZATION, format!("Bearer {ADMIN}"))
            .header("Prefer", "respond-async")
            .body(Body::from(
                serde_json::json!({ "orders": lines }).to_string(),
            ))
            .unwrap();
        self.keys += 1;
        let api = self.api.clone();
        Box::pin(async move { vec![api.answer(request).await] })
    }

    /// Compares the cost of `count` concurrent orders with the bound.
    fn check(&mut self, bound: Bound, count: usize, wait: bool, status: StatusCode) {
        let service = std::cell::RefCell::new(self);
        let run = |answers: Answers| {
            assert_all(&service.borrow().runtime.block_on(answers), status);
        };
        let spent = fewest_allocations(|| service.borrow_mut().orders(count, wait), run);
        bound.check(spent, count);
    }

    /// Runs the orders, and returns the Redis commands and SQL statements of them.
    fn stores_asked(
        &mut self,
        count: usize,
        status: StatusCode,
    ) -> (Vec<(String, u64)>, Vec<String>) {
        let orders = self.orders(count, false);
        self.stores_asked_by(orders, status)
    }

    /// The same for any requests.
    fn stores_asked_by(
        &mut self,
        orders: Answers,
        status: StatusCode,
    ) -> (Vec<(String, u64)>, Vec<String>) {
        let url = self.redis.url();
        let ((answers, statements), commands) = self
            .runtime
            .block_on(commands(&url, statements(orders)))
            .unwrap();
        assert_all(&answers, status);
        (commands.into_iter().collect(), statements)
    }

    /// Asserts that no unit is oversold, stranded or lost; orders that are not recorded count as in
    /// flight.
    fn close(self) {
        self.runtime.block_on(async {
            let (stock, ledger) = (&self.engine.stock, &*self.engine.ledger);
            let audited = audit::full_report(stock, ledger, &self.item.id).await;
            let report = audited.unwrap().unwrap();
            assert_eq!((report.drift, report.oversold), (0, 0), "{report:?}");
            self.engine.stock.shutdown().await;
        });
    }
}

fn assert_all(answers: &[Response<Body>], status: StatusCode) {
    let others = answers.iter().filter(|answer| answer.status() != status);
    let others: Vec<_> = others.map(Response::status).collect();
    assert!(
        others.is_empty(),
        "{} of {} answers are not {status}: {others:?}",
        others.len(),
        answers.len()
    );
}

/// A recorder on its own thread.
struct Recording {
    stop: CancellationToken,
    thread: std::thread::JoinHandle<()>,
}

impl Recording {
    fn of(service: &Service) -> Self {
        let (redis_url, database_url) = (service.redis.url(), service.database_url.clone());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            runtime().block_on(async {
                let engine = engine(&redis_url, &database_url).await;
                recorder::run(
                    Arc::clone(&engine.stock),
                    Arc::clone(&engine.ledger),
                    RecorderSettings::default(),
                    stopped,
                )
                .await;
                engine.stock.shutdown().await;
            });
        });
        Self { stop, thread }
    }

    fn stop(self) {
        self.stop.cancel();
        self.thread.join().unwrap();
    }
}

#[test]
fn an_accepted_order_allocates_no_more_than_it_may() {
    let mut service = Service::selling(100_000);
    service.check(
        Bound {
            what: "an accepted order over HTTP at batch 1",
            most: 44.0,
        },
        1,
        false,
        StatusCode::ACCEPTED,
    );
    service.check(
        Bound {
            what: "an accepted order over HTTP at batch 128",
            most: 15.5,
        },
        128,
        false,
        StatusCode::ACCEPTED,
    );
    service.close();
}

#[test]
fn a_recorded_order_allocates_no_more_than_it_may() {
    let mut service = Service::selling(100_000);
    let recording = Recording::of(&service);
    service.check(
        Bound {
            what: "a recorded order over HTTP at batch 1",
            most: 55.0,
        },
        1,
        true,
        StatusCode::CREATED,
    );
    service.check(
        Bound {
            what: "a recorded order over HTTP at batch 128",
            most: 15.5,
        },
        128,
        true,
        StatusCode::CREATED,
    );
    recording.stop();
    service.close();
}

#[test]
fn a_refusal_allocates_no_more_than_it_may() {
    let mut service = Service::selling(0);
    service.check(
        Bound {
            what: "a refusal over HTTP",
            most: 6.6,
        },
        128,
        true,
        StatusCode::CONFLICT,
    );
    service.close();
}

/// Limits with which each buyer may send one request in an hour.
fn one_request_each() -> Limits {
    Limits {
        rates: RateLimits {
            buyer: Rate::new(Duration::from_secs(3600), NonZeroU32::MIN),
            ..RateLimits::default()
        },
        ..Limits::default()
    }
}

#[test]
fn a_request_above_the_rate_calls_no_store_and_allocates_no_more_than_it_may() {
    let mut service = Service::selling_within(100_000, &one_request_each());
    // The first request of each buyer is admitted.
    service.stores_asked(BUYERS, StatusCode::ACCEPTED);
    assert_eq!(
        service.stores_asked(CROWD, StatusCode::TOO_MANY_REQUESTS),
        (Vec::new(), Vec::new())
    );
    service.check(
        Bound {
            what: "a request above the rate",
            most: 14.0,
        },
        128,
        true,
        StatusCode::TOO_MANY_REQUESTS,
    );
    service.close();
}

/// Carts of one unit of each of these items, with keys of this name.
fn carts(service: &Service, items: &[&str], name: &str, count: usize) -> Answers {
    let line = |item: &&str| serde_json::json!({ "item": item, "quantity": 1 });
    let lines: Vec<_> = items.iter().map(line).collect();
    let body = serde_json::json!({ "lines": lines }).to_string();
    let request = |n: usize| {
        let token = &service.tokens[service.first + n % BUYERS];
        let request = Request::post("/v1/carts")
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header("Idempotency-Key", format!("{name}-{n}"));
        request.body(Body::from(body.clone())).unwrap()
    };
    let api = service.api.clone();
    let answers = (0..count).map(|n| (api.clone(), request(n)));
    let answers: Vec<_> = answers
        .map(|(api, request)| async move { api.answer(request).await })
        .collect();
    Box::pin(join_all(answers))
}

/// Asserts that so many refused carts have called no Redis, and were looked up together.
fn assert_looked_up_together(asked: &(Vec<(String, u64)>, Vec<String>)) {
    let (commands, statements) = asked;
    assert!(commands.is_empty(), "{commands:?}");
    // The first one asks alone, and then one for all that wait. Some may come later.
    assert!(
        (1..=20).contains(&statements.len())
            && statements.iter().all(|statement| statement == "SELECT"),
        "{statements:?}"
    );
}

#[test]
fn a_cart_with_a_sold_out_line_costs_a_part_of_a_statement() {
    let mut service = Service::selling(3);
    let mut jug = item(5);
    jug.id = ItemId::new("jug").unwrap();
    let created = service
        .runtime
        .block_on(service.engine.create_item(&jug, "admin"));
    created.unwrap().unwrap();
    service.stores_asked(3, StatusCode::ACCEPTED);
    service.first = BUYERS;
    // The first refusal fills the sold-out cache.
    service.stores_asked(1, StatusCode::CONFLICT);
    // Sorted by item the jug comes first; its units must not be taken either.
    let warm = carts(&service, &["jug", "vase"], "warm", 1);
    service.stores_asked_by(warm, StatusCode::CONFLICT);
    let refused = carts(&service, &["jug", "vase"], "strangers", 1000);
    assert_looked_up_together(&service.stores_asked_by(refused, StatusCode::CONFLICT));
    // A buyer who has units may be repeating a cart, but the ledger has none.
    service.first = 0;
    let holders = carts(&service, &["jug", "vase"], "holders", 1000);
    assert_looked_up_together(&service.stores_asked_by(holders, StatusCode::CONFLICT));
    service.close();
}

/// After a failover home may have forgotten any buyer, until the reconciler has checked it.
#[test]
fn strangers_of_an_unchecked_home_are_looked_up_together() {
    let mut service = Service::selling(1);
    let mut jug = item(0);
    (jug.id, jug.segments) = (ItemId::new("jug").unwrap(), 2);
    let created = service
        .runtime
        .block_on(service.engine.create_item(&jug, "admin"));
    service.item = created.unwrap().unwrap();
    for segment in 0..2 {
        let mut forget = redis::cmd("HSET");
        forget
            .arg(format!("stock:{{jug:{segment}}}"))
            .arg("checked")
            .arg("another history");
        let url = service.redis.url();
        service.runtime.block_on(run(&url, &forget));
    }
    // The first refusal fills the sold-out cache.
    service.stores_asked(1, StatusCode::CONFLICT);
    let (_, statements) = service.stores_asked(1000, StatusCode::CONFLICT);
    // Redis's replies come in some bunches, and each bunch is looked up together.
    assert!(
        (1..=250).contains(&statements.len()),
        "{} statements",
        statements.len()
    );
    service.close();
}

#[test]
fn carts_of_an_item_that_does_not_sell_cost_a_part_of_a_statement() {
    let mut service = Service::selling(3);
    let change = ItemChange {
        state: Some(ItemState::Closed),
        ..ItemChange::default()
    };
    service.changes(&change);
    // The first one reads its home.
    let first = carts(&service, &["vase"], "first", 1);
    let (commands, _) = service.stores_asked_by(first, StatusCode::CONFLICT);
    assert_eq!(commands, [("hmget".to_owned(), 2)]);
    let refused = carts(&service, &["vase"], "closed", 1000);
    assert_looked_up_together(&service.stores_asked_by(refused, StatusCode::CONFLICT));
    service.close();
}

/// Look-ups one after the other.
fn look_ups(service: &Service, token: &str, paths: Vec<String>) -> Answers {
    let (api, token) = (service.api.clone(), format!("Bearer {token}"));
    Box::pin(async move {
        let mut answers = Vec::new();
        for path in paths {
            let request = Request::get(path).header(header::AUTHORIZATION, &token);
            answers.push(api.answer(request.body(Body::empty()).unwrap()).await);
        }
        answers
    })
}

/// Number of look-ups in a test.
const LOOK_UPS: usize = 100;

#[test]
fn a_look_up_of_what_does_not_exist_costs_a_statement_and_repeats_nothing() {
    let mut service = Service::selling(1);
    let mut jug = item(500);
    (jug.id, jug.segments) = (ItemId::new("jug").unwrap(), 64);
    let created = service
        .runtime
        .block_on(service.engine.create_item(&jug, "admin"));
    created.unwrap().unwrap();
    let buyer = service.tokens[0].clone();
    let id = |n: usize| {
        let (eve, key) = (BuyerId::new("eve"), IdempotencyKey::new(format!("k{n}")));
        OrderId::derive(&jug.id, jug.id.tag(), &eve.unwrap(), &key.unwrap())
    };
    let paths = |from: usize| {
        let path = |n| format!("/v1/orders/{}", id(n));
        (from..from + LOOK_UPS).map(path).collect::<Vec<_>>()
    };
    // The first one reads which items have the tag.
    let first = look_ups(&service, &buyer, vec![paths(1000)[0].clone()]);
    service.stores_asked_by(first, StatusCode::NOT_FOUND);

    let of_buyer = look_ups(&service, &buyer, paths(0));
    let (commands, statements) = service.stores_asked_by(of_buyer, StatusCode::NOT_FOUND);
    // Each asks the home for the order, and then for its mark.
    let calls = |command: &str| {
        let mut all = commands.iter();
        all.find(|(name, _)| name == command)
            .map_or(0, |(_, calls)| *calls)
    };
    let each = u64::try_from(LOOK_UPS).unwrap();
    assert_eq!(
        (calls("hget"), calls("evalsha")),
        (each, each),
        "{commands:?}"
    );
    // A minute later the items of the tag are read again.
    let is_one_each = |statements: &[String]| statements.len() <= LOOK_UPS + 2;
    assert!(is_one_each(&statements), "{statements:?}");
    let of_admin = look_ups(&service, ADMIN, paths(100));
    let (_, statements) = service.stores_asked_by(of_admin, StatusCode::NOT_FOUND);
    assert!(is_one_each(&statements), "{statements:?}");

    for kind in ["orders", "carts"] {
        let random = (0..LOOK_UPS).map(|_| format!("/v1/{kind}/{}", uuid::Uuid::new_v4()));
        let random = look_ups(&service, &buyer, random.collect());
        let (commands, statements) = service.stores_asked_by(random, StatusCode::NOT_FOUND);
        assert!(commands.is_empty(), "{commands:?}");
        assert!(is_one_each(&statements), "{statements:?}");
        let same = format!("/v1/{kind}/{}", id(5000));
        let began = Instant::now();
        let same = look_ups(&service, &buyer, vec![same; 1000]);
        let (_, statements) = service.stores_asked_by(same, StatusCode::NOT_FOUND);
        let most = 2 * (1 + lifetimes_since(began));
        let reads = statements.len();
        assert!(reads <= most, "{reads} statements, {most} at most");
    }
    service.close();
}

#[test]
fn what_was_just_placed_is_found_although_it_was_just_looked_up_in_vain() {
    let mut service = Service::selling(9);
    let buyer = service.tokens[0].clone();
    let (ann, key) = (BuyerId::new("buyer-0"), IdempotencyKey::new("key-0-0"));
    let vase = &service.item.id;
    let id = OrderId::derive(vase, vase.tag(), &ann.unwrap(), &key.unwrap());
    let path = format!("/v1/orders/{id}");
    for token in [&*buyer, ADMIN] {
        let missing = look_ups(&service, token, vec![path.clone(); 2]);
        service.stores_asked_by(missing, StatusCode::NOT_FOUND);
    }
    service.stores_asked(1, StatusCode::ACCEPTED);
    for token in [&*buyer, ADMIN] {
        let found = look_ups(&service, token, vec![path.clone()]);
        service.stores_asked_by(found, StatusCode::OK);
    }
    service.close();
}

/// How often readers at the end of the events look at most, each for itself or all together.
const EVENTS_INTERVAL: Duration = Duration::from_millis(200);

#[test]
fn readers_who_wait_for_events_share_one_look() {
    const READERS: usize = 300;
    let mut service = Service::selling(1);
    let path = "/v1/events?after=now&wait=2";
    let readers = (0..READERS).map(|_| look_ups(&service, ADMIN, vec![path.to_owned()]));
    let readers: Vec<_> = readers.collect();
    let readers: Answers = Box::pin(async move {
        let answers = join_all(readers).await;
        answers.into_iter().flatten().collect()
    });
    let began = Instant::now();
    let (_, statements) = service.stores_asked_by(readers, StatusCode::OK);
    let looks = began.elapsed().as_millis() / EVENTS_INTERVAL.as_millis();
    let looks = 1 + usize::try_from(looks).unwrap();
    // Each one finds the end, checks its cursor and reads once, by two statements. Without the
    // shared look it would read as often as all of them look together. Opening the database costs a
    // few more.
    let most = READERS * 5 + looks + 10;
    let reads = statements.len();
    assert!(reads <= most, "{reads} statements, {most} at most");
    service.close();
}

#[test]
fn an_order_calls_redis_by_the_batch_and_the_database_never() {
    let mut service = Service::selling(100_000);
    service.stores_asked(1, StatusCode::ACCEPTED);
    // Concurrent orders may leave in two batches: a request may yield between request and batcher.
    for (count, batches_most) in [(1, 1), (128, 2)] {
        let (commands, statements) = service.stores_asked(count, StatusCode::ACCEPTED);
        let batches = commands
            .iter()
            .find(|(command, _)| command == "evalsha")
            .map_or(0, |(_, calls)| *calls);
        assert!(
            (1..=batches_most).contains(&batches),
            "{count} orders left in {batches} batches: {commands:?}"
        );
        // The same commands that crates/stock counts for a batch: the service adds none.
        let expected = [
            ("evalsha", 1),
            ("hmget", 3),
            ("hset", 3),
            ("time", 1),
            ("xadd", 1),
            ("xlen", 1),
        ];
        assert_eq!(
            commands,
            expected.map(|(command, calls)| (command.to_owned(), calls * batches)),
            "{count} orders"
        );
        assert_eq!(statements, [""; 0], "{count} orders");
    }
    service.close();
}

#[test]
fn a_batch_calls_redis_as_one_order_and_allocates_no_more_than_it_may() {
    let mut service = Service::selling(1_000_000);
    service.stores_asked(1, StatusCode::ACCEPTED);
    // The first batch of an admin is noted in the item's journal.
    let first = service.batch(1);
    service.stores_asked_by(first, StatusCode::OK);
    let batch = service.batch(512);
    let (commands, statements) = service.stores_asked_by(batch, StatusCode::OK);
    let scripts = commands.iter().find(|(command, _)| command == "evalsha");
    let scripts = scripts.map_or(0, |(_, calls)| *calls);
    assert!((1..=2).contains(&scripts), "{commands:?}");
    assert_eq!(statements, [""; 0]);
    let service = std::cell::RefCell::new(service);
    let run = |batch: Answers| {
        let answers = service.borrow().runtime.block_on(batch);
        assert_eq!(answers[0].status(), StatusCode::OK);
    };
    let spent = fewest_allocations(|| service.borrow_mut().batch(128), run);
    let bound = Bound {
        what: "an order of a batch of 128 over HTTP",
        most: 12.5,
    };
    bound.check(spent, 128);
    service.into_inner().close();
}

#[test]
fn orders_before_the_opening_call_no_store() {
    let mut service = Service::selling(100_000);
    let opens_at = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    let change = ItemChange {
        window: Some(Window {
            opens_at: Some(opens_at),
            closes_at: None,
        }),
        ..ItemChange::default()
    };
    service.changes(&change);
    // The first one reads the segments.
    service.stores_asked(1, StatusCode::CONFLICT);
    assert_eq!(
        service.stores_asked(CROWD, StatusCode::CONFLICT),
        (Vec::new(), Vec::new())
    );
    service.close();
}

/// How long the service keeps the view of an item, and the knowledge that there is no such item.
const LIFETIME: Duration = Duration::from_millis(250);

/// How often something was read anew at most that is kept for [`LIFETIME`]. A slow machine reads
/// more often.
fn lifetimes_since(began: Instant) -> usize {
    let lifetimes = began.elapsed().as_millis() / LIFETIME.as_millis();
    usize::try_from(lifetimes).unwrap()
}

#[test]
fn many_orders_for_an_unknown_item_cost_few_statements() {
    let mut service = Service::selling(1);
    let known = std::mem::replace(&mut service.item.id, ItemId::new("nothing").unwrap());
    let began = Instant::now();
    let mut statements = Vec::new();
    while began.elapsed() < LIFETIME * 3 {
        let (commands, more) = service.stores_asked(CROWD, StatusCode::NOT_FOUND);
        assert!(commands.is_empty(), "{commands:?}");
        statements.extend(more);
    }
    // One read for each time that what is known of an unknown item lasts. Opening the database
    // costs a statement or two.
    let most = 4 + lifetimes_since(began);
    let reads = statements.len();
    assert!(
        (1..=most).contains(&reads),
        "{reads} statements, {most} at most"
    );
    service.item.id = known;
    service.close();
}

#[test]
fn many_first_orders_for_an_item_cost_one_read() {
    let mut service = Service::selling(100_000);
    let (redis_url, database_url) = (service.redis.url(), service.database_url.clone());
    let started = service.runtime.block_on(engine(&redis_url, &database_url));
    service.api = Service::api_of(&started, &Limits::default());
    let (_, statements) = service.stores_asked(1000, StatusCode::ACCEPTED);
    let reads = statements.iter().filter(|statement| *statement == "SELECT");
    assert_eq!(reads.count(), 1, "{statements:?}");
    service.runtime.block_on(started.stock.shutdown());
    service.close();
}

#[test]
fn the_views_of_an_item_cost_one_read() {
    const VIEWS: usize = 1000;
    let mut service = Service::selling(3);
    let views = |count| -> Answers {
        let api = service.api.clone();
        let view = move |_| {
            let (api, request) = (api.clone(), Request::get("/v1/items/vase"));
            async move { api.answer(request.body(Body::empty()).unwrap()).await }
        };
        Box::pin(join_all((0..count).map(view)))
    };
    let (one, many) = (views(1), views(VIEWS));
    let (commands_of_one, statements_of_one) = service.stores_asked_by(one, StatusCode::OK);
    assert!(!commands_of_one.is_empty() && !statements_of_one.is_empty());
    let began = Instant::now();
    let (commands, statements) = service.stores_asked_by(many, StatusCode::OK);
    // One read for each lifetime of a view.
    let reads = 2 + lifetimes_since(began);
    let calls_most = u64::try_from(4 * reads).unwrap();
    assert!(
        statements.len() <= reads * statements_of_one.len()
            && commands.iter().all(|(_, calls)| *calls <= calls_most),
        "{VIEWS} views, {reads} reads at most: {commands:?}, {statements:?}"
    );
    service.close();
}

#[test]
fn forty_items_in_one_read_cost_one_statement_and_a_script_each() {
    let mut service = Service::selling(3);
    let ids: Vec<_> = (0..40).map(|n| format!("item-{n}")).collect();
    for id in &ids {
        let id = ItemId::new(id.as_str()).unwrap();
        let item = Item { id, ..item(3) };
        let created = service.engine.create_item(&item, "admin");
        service.runtime.block_on(created).unwrap().unwrap();
    }
    let path = format!("/v1/items:batch?ids={},none", ids.join(","));
    let (api, request) = (service.api.clone(), Request::get(path));
    let answers: Answers =
        Box::pin(async move { vec![api.answer(request.body(Body::empty()).unwrap()).await] });
    let (commands, statements) = service.stores_asked_by(answers, StatusCode::OK);
    assert_eq!(statements, ["SELECT"]);
    assert!(commands.contains(&("evalsha".into(), 40)), "{commands:?}");
    service.close();
}

/// Balancers ask each process every second or more often, and anybody may.
#[test]
fn readiness_costs_one_script_for_each_look_and_nothing_for_each_request() {
    let service = Service::selling(1);
    let url = service.redis.url();
    // The first one connects.
    service.runtime.block_on(service.engine.look_at_stores());
    let look = statements(service.engine.look_at_stores());
    let look = service.runtime.block_on(commands(&url, look)).unwrap();
    let (((), statements_of_a_look), commands_of_a_look) = look;
    // On SQLite it takes the write lock and gives it back. What writes one page now and then, between
    // the two, is not counted.
    assert!(statements_of_a_look.len() <= 2, "{statements_of_a_look:?}");
    let expected = [("evalsha", 1), ("time", 1)].map(|(name, calls)| (name.to_owned(), calls));
    assert_eq!(Vec::from_iter(commands_of_a_look), expected);
    let asked = (0..1000).map(|_| {
        let (api, request) = (service.api.clone(), Request::get("/readyz"));
        async move { api.answer(request.body(Body::empty()).unwrap()).await }
    });
    let asked = statements(join_all(asked));
    let asked = service.runtime.block_on(commands(&url, asked)).unwrap();
    let ((answers, statements), commands) = asked;
    assert!(commands.is_empty(), "{commands:?}");
    assert_eq!(statements, [""; 0]);
    // On a busy machine the look may be too old for the last ones.
    let statuses = [StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE];
    let is_known = |answer: &Response<Body>| statuses.contains(&answer.status());
    assert!(answers.iter().all(is_known) && answers[0].status() == StatusCode::OK);
    service.close();
}

#[test]
fn a_refusal_of_a_sold_out_item_calls_no_store() {
    let mut service = Service::selling(3);
    service.stores_asked(3, StatusCode::ACCEPTED);
    // Use buyers without units: the stock answers those with units from their records. The first
    // refusal fills the sold-out cache.
    service.first = BUYERS;
    service.stores_asked(1, StatusCode::CONFLICT);
    assert_eq!(
        service.stores_asked(CROWD, StatusCode::CONFLICT),
        (Vec::new(), Vec::new())
    );
    // Neither does one with the total of a shop, or with less than the price.
    for order in [
        r#"{"quantity":1,"amount":7}"#,
        r#"{"quantity":1,"amount":0}"#,
    ] {
        service.order = order;
        assert_eq!(
            service.stores_asked(1000, StatusCode::CONFLICT),
            (Vec::new(), Vec::new())
        );
    }
    service.order = r#"{"quantity":1}"#;
    // The counters work: a buyer who holds units is refused by the script, which counts.
    service.first = 0;
    let (commands, statements) = service.stores_asked(3, StatusCode::CONFLICT);
    assert!(commands.contains(&("evalsha".into(), 1)), "{commands:?}");
    assert_eq!(
        statements
            .iter()
            .filter(|statement| *statement == "SELECT")
            .count(),
        3,
        "{statements:?}"
    );
    service.close();
}
