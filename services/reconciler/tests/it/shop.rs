//! Items on sale, with a Redis, a ledger, recorders and reconcilers. All tests of the binary share one Redis and one Postgres, but for those that break
//! theirs; each has a database of its own.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use audit::AuditReport;
use domain::{
    BuyerId, Durability, IdempotencyKey, Item, ItemId, ItemState, Order, OrderId, OrderState,
    PaymentId, Quantity, SegmentKey, Window,
};
use futures::future::join_all;
use jiff::Timestamp;
use ledger::{Created, JournalEntry, Ledger, SegmentRow, Transition};
use lock::{Lock, RedisLockBuilder};
use reconciler::ReconcilerSettings;
use recorder::RecorderSettings;
use redis::{Cmd, FromRedisValue};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use stock::{
    Acknowledge, Ask, GiveBack, Inspection, InspectionEntries, Outcome, RedisSettings, Stock,
    StockError, StockSettings,
};
use tempfile::TempDir;
use testbed::{Postgres, Redis};
use tokio::{sync::OnceCell, task::JoinHandle};
use tokio_util::sync::CancellationToken;

/// They live as long as the process, and no longer: `testbed` sees to that.
static REDIS: OnceCell<Redis> = OnceCell::const_new();
static POSTGRES: OnceCell<Postgres> = OnceCell::const_new();

/// Makes two tests of every function: with a ledger on SQLite and on Postgres.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::shop::run($crate::shop::Kind::Sqlite, $crate::shop::shared_redis().await, super::$name).await;
            })+
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::shop::run($crate::shop::Kind::Postgres, $crate::shop::shared_redis().await, super::$name).await;
            })+
        }
    };
}
pub(crate) use on_both;

/// The same with a Redis server for each test alone, which it may empty.
macro_rules! on_both_with_a_redis_of_its_own {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let redis = testbed::Redis::start().await.unwrap();
                $crate::shop::run($crate::shop::Kind::Sqlite, redis.url(), super::$name).await;
            })+
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let redis = testbed::Redis::start().await.unwrap();
                $crate::shop::run($crate::shop::Kind::Postgres, redis.url(), super::$name).await;
            })+
        }
    };
}
pub(crate) use on_both_with_a_redis_of_its_own;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
}

/// Runs a test and then holds Redis and the ledger against each other.
pub async fn run<T: AsyncFnOnce(&Arc<Shop>)>(kind: Kind, redis_url: String, test: T) {
    let shop = Arc::new(Shop::new(kind, redis_url).await);
    test(&shop).await;
    shop.close().await;
}

pub async fn shared_redis() -> String {
    REDIS.get_or_try_init(Redis::start).await.unwrap().url()
}

pub struct Shop {
    pub redis_url: String,
    database_url: String,
    running: Mutex<Vec<Running>>,
    sales: Mutex<Vec<Arc<Sale>>>,
    _folder: TempDir,
}

/// Looks often, and repairs what has stood for so long.
pub fn quick() -> ReconcilerSettings {
    ReconcilerSettings {
        round_every: Duration::from_millis(20),
        expire_every: Duration::from_millis(20),
        return_after: Duration::from_millis(100),
        confirm_for: CONFIRM_FOR,
        balance: false,
        ..ReconcilerSettings::default()
    }
}

pub const CONFIRM_FOR: Duration = Duration::from_millis(400);

/// On a server that no test breaks.
pub async fn lock() -> Arc<dyn Lock> {
    Arc::new(RedisLockBuilder::new(shared_redis().await).build().unwrap())
}

impl Shop {
    pub async fn new(kind: Kind, redis_url: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database_url = match kind {
            Kind::Sqlite => format!("sqlite://{}/ledger.db", folder.path().display()),
            Kind::Postgres => {
                static COUNT: AtomicU32 = AtomicU32::new(0);
                let server = POSTGRES.get_or_try_init(Postgres::start).await.unwrap();
                server
                    .create_database(&format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed)))
                    .await
                    .unwrap()
            }
        };
        let shop = Self {
            redis_url,
            database_url,
            running: Mutex::default(),
            sales: Mutex::default(),
            _folder: folder,
        };
        shop.ledger().await.migrate().await.unwrap();
        shop
    }

    pub async fn ledger(&self) -> Arc<dyn Ledger> {
        ledger::connect(&self.database_url, 4).await.unwrap()
    }

    /// Walks are forgotten soon.
    pub async fn stock(&self) -> Arc<Stock> {
        let redis = RedisSettings {
            response_timeout: Duration::from_millis(500),
            ..RedisSettings::new(&self.redis_url)
        };
        Stock::connect(StockSettings {
            redis,
            forget_margin: Duration::from_millis(200),
            ..StockSettings::new("")
        })
        .await
        .unwrap()
    }

    /// Starts a recorder, as if in a process of its own.
    pub async fn record(&self) {
        let (stock, ledger, stop) = (
            self.stock().await,
            self.ledger().await,
            CancellationToken::new(),
        );
        let task = tokio::spawn(recorder::run(
            Arc::clone(&stock),
            ledger,
            RecorderSettings::default(),
            stop.clone(),
        ));
        self.running
            .lock()
            .unwrap()
            .push(Running { stop, task, stock });
    }

    /// Starts a reconciler, as if in a process of its own.
    pub async fn reconcile(&self, settings: ReconcilerSettings) {
        self.reconcile_with(settings, lock().await).await;
    }

    pub async fn reconcile_with(&self, settings: ReconcilerSettings, lock: Arc<dyn Lock>) {
        let running = self.reconciler(settings, lock).await;
        self.running.lock().unwrap().push(running);
    }

    pub async fn reconciler(&self, settings: ReconcilerSettings, lock: Arc<dyn Lock>) -> Running {
        self.reconciler_on(self.ledger().await, settings, lock)
            .await
    }

    /// Over a ledger that may be worse than ours.
    pub async fn reconcile_on(&self, ledger: Arc<dyn Ledger>, settings: ReconcilerSettings) {
        let running = self.reconciler_on(ledger, settings, lock().await).await;
        self.running.lock().unwrap().push(running);
    }

    async fn reconciler_on(
        &self,
        ledger: Arc<dyn Ledger>,
        settings: ReconcilerSettings,
        lock: Arc<dyn Lock>,
    ) -> Running {
        let (stock, stop) = (self.stock().await, CancellationToken::new());
        let task = tokio::spawn(reconciler::run(
            Arc::clone(&stock),
            ledger,
            lock,
            settings,
            stop.clone(),
        ));
        Running { stop, task, stock }
    }

    /// Behind everybody's back, in the words of its database.
    pub async fn sql(&self, on_postgres: &str, on_sqlite: &str) {
        if self.database_url.starts_with("sqlite") {
            let mut connection = SqliteConnection::connect(&self.database_url).await.unwrap();
            sqlx::raw_sql(AssertSqlSafe(on_sqlite))
                .execute(&mut connection)
                .await
                .unwrap();
            connection.close().await.unwrap();
        } else {
            let mut connection = PgConnection::connect(&self.database_url).await.unwrap();
            sqlx::raw_sql(AssertSqlSafe(on_postgres))
                .execute(&mut connection)
                .await
                .unwrap();
            connection.close().await.unwrap();
        }
    }

    /// The same words for both.
    pub async fn sql_on_both(&self, statement: &str) {
        self.sql(statement, statement).await;
    }

    /// Ends what was started, in order.
    pub async fn stop_all(&self) {
        let running = std::mem::take(&mut *self.running.lock().unwrap());
        for running in running {
            running.stop().await;
        }
    }

    /// Puts an item on sale.
    pub async fn sell(&self, units: u64, segments: u16) -> Arc<Sale> {
        self.sell_with(units, segments, |item| item).await
    }

    pub async fn sell_with(
        &self,
        units: u64,
        segments: u16,
        terms: impl FnOnce(Item) -> Item,
    ) -> Arc<Sale> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let item = terms(Item {
            id: ItemId::new(format!("item-{}", COUNT.fetch_add(1, Ordering::Relaxed))).unwrap(),
            title: "Item".into(),
            stock: units,
            price_cents: 1,
            currency: "EUR".into(),
            limit_per_buyer: None,
            segments,
            window: Window::default(),
            hold_seconds: 600,
            durability: Durability::Recorded,
            state: ItemState::Open,
            epoch: 1,
            version: 1,
        });
        let ledger = self.ledger().await;
        assert!(matches!(
            ledger.create_item(&item).await.unwrap(),
            Created::New(_)
        ));
        let stock = self.stock().await;
        // A recorder that sweeps just now may have been faster.
        stock.open(&item).await.unwrap();
        let sale = Arc::new(Sale {
            item,
            ledger,
            stock,
            redis_url: Mutex::new(self.redis_url.clone()),
        });
        self.sales.lock().unwrap().push(Arc::clone(&sale));
        sale
    }

    pub async fn close(&self) {
        let sales = std::mem::take(&mut *self.sales.lock().unwrap());
        for sale in &sales {
            sale.comes_to_rest().await;
        }
        self.stop_all().await;
        for sale in &sales {
            sale.audit().await;
            sale.stock.shutdown().await;
        }
    }
}

/// A recorder or a reconciler at work.
pub struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
    stock: Arc<Stock>,
}

impl Running {
    pub async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(15), self.task)
            .await
            .expect("it ends in time")
            .unwrap();
        self.stock.shutdown().await;
    }
}

/// An item on sale.
pub struct Sale {
    pub item: Item,
    pub ledger: Arc<dyn Ledger>,
    pub stock: Arc<Stock>,
    /// Where its keys are now, for whoever looks behind everybody's back.
    pub redis_url: Mutex<String>,
}

pub fn buyer(n: usize) -> BuyerId {
    BuyerId::new(format!("buyer-{n}")).unwrap()
}

impl Sale {
    pub fn segment(&self, segment: u16) -> SegmentKey {
        SegmentKey {
            item: self.item.id.clone(),
            segment,
        }
    }

    pub fn segments(&self) -> Vec<SegmentKey> {
        (0..self.item.segments)
            .map(|number| self.segment(number))
            .collect()
    }

    pub fn key(&self, kind: &str, segment: u16) -> String {
        format!("{kind}:{{{}:{segment}}}", self.item.id)
    }

    /// All keys of a segment.
    pub fn keys(&self, segment: u16) -> Vec<String> {
        ["stock", "answers", "buyers", "outbox", "walks"]
            .map(|kind| self.key(kind, segment))
            .into()
    }

    pub fn home(&self, buyer: &BuyerId) -> u16 {
        u16::try_from(buyer.stable_hash() % u64::from(self.item.segments)).unwrap()
    }

    /// The n-th buyer whose home is this segment.
    pub fn buyer_at(&self, home: u16, n: usize) -> BuyerId {
        (0..)
            .map(buyer)
            .filter(|buyer| self.home(buyer) == home)
            .nth(n)
            .unwrap()
    }

    pub fn order_id(&self, buyer: &BuyerId, key: &str) -> OrderId {
        OrderId::derive(
            &self.item.id,
            self.item.id.tag(),
            buyer,
            &IdempotencyKey::new(key).unwrap(),
        )
    }

    pub fn ask(&self, buyer: &BuyerId, key: &str, units: u32) -> Ask {
        Ask {
            order: self.order_id(buyer, key),
            buyer: buyer.clone(),
            quantity: Quantity::new(units).unwrap(),
            acknowledge: Acknowledge::Accepted,
            within: Duration::from_secs(20),
        }
    }

    pub async fn try_order(&self, ask: Ask) -> Result<Outcome, StockError> {
        self.stock.item(&self.item).order(ask).await
    }

    pub async fn order(&self, buyer: &BuyerId, key: &str, units: u32) -> Outcome {
        self.try_order(self.ask(buyer, key, units)).await.unwrap()
    }

    /// Takes the units for the buyer, and waits until the ledger has the order.
    pub async fn hold(&self, buyer: &BuyerId, key: &str, units: u32) -> OrderId {
        let outcome = self.order(buyer, key, units).await;
        assert!(is_held(&outcome), "{buyer}: {outcome:?}");
        let id = self.order_id(buyer, key);
        eventually("recording the order", async || {
            self.state(id).await.is_some()
        })
        .await;
        id
    }

    /// Buyers from `first` on, a unit each, all recorded.
    pub async fn hold_many(&self, buyers: std::ops::Range<usize>) -> Vec<OrderId> {
        join_all(buyers.map(|n| async move { self.hold(&buyer(n), "key", 1).await })).await
    }

    pub async fn recorded(&self, id: OrderId) -> Order {
        self.ledger
            .order(id)
            .await
            .unwrap()
            .expect("it is recorded")
    }

    pub async fn state(&self, id: OrderId) -> Option<OrderState> {
        self.ledger
            .order(id)
            .await
            .unwrap()
            .map(|order| order.state)
    }

    /// The step in the ledger, and nothing else: as if whoever made it died then.
    pub async fn step(&self, id: OrderId, to: OrderState) -> Order {
        let order = self.recorded(id).await;
        let payment =
            (to == OrderState::Confirmed).then(|| PaymentId::new(format!("pay-{id}")).unwrap());
        let mut made = self
            .ledger
            .transition(&[Transition { order, to, payment }])
            .await
            .unwrap();
        made.pop()
            .flatten()
            .unwrap_or_else(|| panic!("{id} could not become {to}"))
    }

    /// Gives back what an order took.
    pub async fn give_back(&self, order: &Order) -> Result<u64, StockError> {
        let taken = domain::TakenOrder {
            id: order.take_id(),
            buyer: order.buyer.clone(),
            quantity: order.quantity,
        };
        self.stock
            .item(&self.item)
            .give_back(&[GiveBack {
                segment: order.segment,
                order: taken,
            }])
            .await
    }

    pub async fn row(&self, segment: u16) -> SegmentRow {
        self.ledger
            .segments(&self.item.id)
            .await
            .unwrap()
            .swap_remove(segment.into())
    }

    pub async fn inspect(&self, segment: u16) -> Inspection {
        self.stock
            .inspect(&self.segment(segment), InspectionEntries::All)
            .await
            .unwrap()
    }

    /// Units that nobody has, by segment.
    pub async fn available(&self) -> Vec<u64> {
        let segments = self
            .stock
            .item(&self.item)
            .inspect(InspectionEntries::None)
            .await
            .unwrap();
        segments.iter().map(|segment| segment.available).collect()
    }

    /// The epochs of its segments.
    pub async fn epochs(&self) -> Vec<u64> {
        let segments = self
            .stock
            .item(&self.item)
            .inspect(InspectionEntries::None)
            .await
            .unwrap();
        segments.iter().map(|segment| segment.epoch).collect()
    }

    /// The entries of the journal that speak of this action, the latest first.
    pub async fn journal(&self, action: &str) -> Vec<JournalEntry> {
        let entries = self.ledger.journal(&self.item.id, 1000).await.unwrap();
        entries
            .into_iter()
            .filter(|entry| entry.entry.action == action)
            .collect()
    }

    pub async fn report(&self) -> AuditReport {
        audit::audit(&self.stock, &*self.ledger, &self.item.id)
            .await
            .unwrap()
            .unwrap()
    }

    /// How many orders are in each state.
    pub async fn orders(&self) -> BTreeMap<String, u64> {
        self.ledger
            .totals(&self.item.id)
            .await
            .unwrap()
            .unwrap()
            .orders_by_state
            .into_iter()
            .collect()
    }

    /// Waits until Redis and the ledger agree and nothing is on its way.
    pub async fn comes_to_rest(&self) {
        eventually(&format!("{} coming to rest", self.item.id), async || {
            self.is_at_rest().await
        })
        .await;
    }

    pub async fn is_at_rest(&self) -> bool {
        let Ok(Some(report)) = audit::audit(&self.stock, &*self.ledger, &self.item.id).await else {
            return false;
        };
        let mut halted = false;
        for segment in self.segments() {
            halted |= self
                .stock
                .inspect(&segment, InspectionEntries::None)
                .await
                .map_or(true, |segment| segment.mending.is_some());
        }
        let moving = self
            .ledger
            .open_transfers(Some(&self.item.id))
            .await
            .unwrap();
        report.ok && !halted && moving.is_empty() && report.in_flight + report.returning == 0
    }

    /// The identity, by segment and for the item; nothing pending; and the count of every buyer is what the buyer has.
    pub async fn audit(&self) {
        let report = self.report().await;
        assert!(report.ok, "{report:#?}");
        assert_eq!(
            (report.in_flight, report.in_transit, report.returning),
            (0, 0, 0),
            "{report:#?}"
        );
        assert_eq!(
            report.available + report.held + report.confirmed,
            report.stock,
            "{report:#?}"
        );
        assert_eq!(
            self.ledger
                .pending_returns(Some(&self.item.id), Timestamp::now(), 10)
                .await
                .unwrap(),
            []
        );
        assert_eq!(
            self.ledger
                .open_transfers(Some(&self.item.id))
                .await
                .unwrap(),
            []
        );
        let counted: u64 = self.counts().await.values().sum();
        assert_eq!(
            counted,
            report.held + report.confirmed + self.walking().await,
            "the counts of buyers: {report:#?}"
        );
    }

    /// Units counted against the limit, by buyer.
    pub async fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for segment in 0..self.item.segments {
            let buyers: BTreeMap<String, u64> = self
                .redis(redis::cmd("HGETALL").arg(self.key("buyers", segment)))
                .await;
            // The placeholder, and marks of buyers who have given something back, are no counts.
            counts.extend(
                buyers
                    .into_iter()
                    .filter(|(buyer, _)| !buyer.is_empty() && !buyer.starts_with('\n')),
            );
        }
        counts
    }

    /// Units of walks that nobody has ended yet: their buyers' counts have them.
    async fn walking(&self) -> u64 {
        let mut units = 0;
        for segment in 0..self.item.segments {
            let walks: Vec<Vec<u8>> = self
                .redis(
                    redis::cmd("ZRANGE")
                        .arg(self.key("walks", segment))
                        .arg(0)
                        .arg(-1),
                )
                .await;
            for walk in walks.iter().filter(|walk| !walk.is_empty()) {
                let answer: Option<String> = self
                    .redis(
                        redis::cmd("HGET")
                            .arg(self.key("answers", segment))
                            .arg(&walk[..16]),
                    )
                    .await;
                let passed = answer.as_deref().and_then(|answer| {
                    answer
                        .strip_prefix('P')?
                        .split(':')
                        .next()?
                        .parse::<u64>()
                        .ok()
                });
                units += passed.unwrap_or_default();
            }
        }
        units
    }

    /// Behind everybody's back.
    pub async fn redis<T: FromRedisValue>(&self, cmd: &Cmd) -> T {
        let url = self.redis_url.lock().unwrap().clone();
        let client = redis::Client::open(url).unwrap();
        cmd.query_async(&mut client.get_multiplexed_async_connection().await.unwrap())
            .await
            .unwrap()
    }

    /// Makes it so that Redis has so many units more than it should.
    pub async fn bend(&self, segment: u16, units: i64) {
        let mut cmd = redis::cmd("HINCRBY");
        cmd.arg(self.key("stock", segment))
            .arg("available")
            .arg(units);
        let _: i64 = self.redis(&cmd).await;
    }
}

pub fn is_held(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Held { .. })
}

/// Waits for something that comes soon, but not at once.
pub async fn eventually(what: &str, mut happened: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !happened().await {
        assert!(Instant::now() < deadline, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
