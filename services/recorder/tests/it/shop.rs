//! Items on sale, with a Redis and a ledger. All tests of the binary share one Redis and one Postgres; each has a database of its own.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use domain::{
    BuyerId, Durability, IdempotencyKey, Item, ItemId, ItemState, OrderId, OrderState, Quantity,
    SegmentKey, Window,
};
use futures::future::join_all;
use ledger::{Created, Ledger, SegmentRow};
use recorder::RecorderSettings;
use redis::{Cmd, FromRedisValue, aio::ConnectionManager};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use stock::{Acknowledge, Ask, InspectionEntries, Outcome, Stock, StockError, StockSettings};
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
                $crate::shop::run($crate::shop::Shop::sqlite().await, super::$name).await;
            })+
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::shop::run($crate::shop::Shop::postgres().await, super::$name).await;
            })+
        }
    };
}
pub(crate) use on_both;

/// Runs a test and then holds Redis and the ledger against each other.
pub async fn run<T: AsyncFnOnce(&Arc<Shop>)>(shop: Shop, test: T) {
    let shop = Arc::new(shop);
    test(&shop).await;
    shop.audit().await;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
}

pub struct Shop {
    pub kind: Kind,
    pub redis_url: String,
    pub database_url: String,
    redis: ConnectionManager,
    _folder: Option<TempDir>,
    sales: Mutex<Vec<Arc<Sale>>>,
}

pub async fn shared_redis() -> String {
    REDIS.get_or_try_init(Redis::start).await.unwrap().url()
}

/// A database on the Postgres that all tests share.
pub async fn database() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let server = POSTGRES.get_or_try_init(Postgres::start).await.unwrap();
    let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
    server.create_database(&name).await.unwrap()
}

impl Shop {
    pub async fn sqlite() -> Self {
        Self::sqlite_at(shared_redis().await).await
    }

    pub async fn sqlite_at(redis_url: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/ledger.db", folder.path().display());
        Self::new(Kind::Sqlite, redis_url, url, Some(folder)).await
    }

    pub async fn postgres() -> Self {
        Self::postgres_at(shared_redis().await, database().await).await
    }

    pub async fn postgres_at(redis_url: String, database_url: String) -> Self {
        Self::new(Kind::Postgres, redis_url, database_url, None).await
    }

    async fn new(
        kind: Kind,
        redis_url: String,
        database_url: String,
        folder: Option<TempDir>,
    ) -> Self {
        let redis = redis::Client::open(redis_url.as_str())
            .unwrap()
            .get_connection_manager()
            .await
            .unwrap();
        let shop = Self {
            kind,
            redis_url,
            database_url,
            redis,
            _folder: folder,
            sales: Mutex::default(),
        };
        shop.ledger().await.migrate().await.unwrap();
        shop
    }

    pub async fn ledger(&self) -> Arc<dyn Ledger> {
        ledger::connect(&self.database_url, 4).await.unwrap()
    }

    /// Walks are forgotten soon.
    pub async fn stock(&self) -> Arc<Stock> {
        let settings = StockSettings {
            forget_margin: Duration::from_millis(200),
            ..StockSettings::new(&self.redis_url)
        };
        Stock::connect(settings).await.unwrap()
    }

    /// Starts a recorder, as if in a process of its own.
    pub async fn recorder(&self, settings: RecorderSettings) -> Running {
        let (stock, ledger, stop) = (
            self.stock().await,
            self.ledger().await,
            CancellationToken::new(),
        );
        let task = tokio::spawn(recorder::run(
            Arc::clone(&stock),
            ledger,
            settings,
            stop.clone(),
        ));
        Running { stop, task, stock }
    }

    /// Puts an item on sale.
    pub async fn sell(&self, units: u64, segments: u16) -> Arc<Sale> {
        let sale = self.create(units, segments).await;
        // A recorder that sweeps just now may have been faster.
        sale.stock.open(&sale.item).await.unwrap();
        sale
    }

    /// As a creator that dies before it has opened the segments.
    pub async fn create(&self, units: u64, segments: u16) -> Arc<Sale> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let item = Item {
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
        };
        let ledger = self.ledger().await;
        assert!(matches!(
            ledger.create_item(&item).await.unwrap(),
            Created::New(_)
        ));
        let sale = Arc::new(Sale {
            item,
            ledger,
            stock: self.stock().await,
            diverged: Mutex::default(),
        });
        self.sales.lock().unwrap().push(Arc::clone(&sale));
        sale
    }

    pub async fn redis<T: FromRedisValue>(&self, cmd: &Cmd) -> T {
        cmd.query_async(&mut self.redis.clone()).await.unwrap()
    }

    pub async fn redis_pipe<T: FromRedisValue>(&self, pipe: &redis::Pipeline) -> T {
        pipe.query_async(&mut self.redis.clone()).await.unwrap()
    }

    /// Runs a statement past the ledger.
    pub async fn sql(&self, sql: &str) {
        let sql = AssertSqlSafe(sql);
        match self.kind {
            Kind::Sqlite => {
                sqlx::query(sql)
                    .execute(&mut SqliteConnection::connect(&self.database_url).await.unwrap())
                    .await
                    .unwrap();
            }
            Kind::Postgres => {
                sqlx::query(sql)
                    .execute(&mut PgConnection::connect(&self.database_url).await.unwrap())
                    .await
                    .unwrap();
            }
        }
    }

    pub async fn audit(&self) {
        let sales = std::mem::take(&mut *self.sales.lock().unwrap());
        for sale in sales {
            sale.audit().await;
            sale.stock.shutdown().await;
        }
    }
}

/// A recorder at work.
pub struct Running {
    stop: CancellationToken,
    pub task: JoinHandle<()>,
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
    /// Segments whose Redis the test has broken for good.
    pub diverged: Mutex<Vec<u16>>,
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

    /// The n-th buyer whose home is this segment.
    pub fn buyer_at(&self, home: u16, n: usize) -> BuyerId {
        let buyer = |n: usize| BuyerId::new(format!("buyer-{n}")).unwrap();
        let at_home = |buyer: &BuyerId| {
            buyer.stable_hash() % u64::from(self.item.segments) == u64::from(home)
        };
        (0..).map(buyer).filter(at_home).nth(n).unwrap()
    }

    pub fn order_id(&self, buyer: &BuyerId) -> OrderId {
        OrderId::derive(
            &self.item.id,
            self.item.id.tag(),
            buyer,
            &IdempotencyKey::new("key").unwrap(),
        )
    }

    pub fn ask(&self, buyer: &BuyerId, units: u32, acknowledge: Acknowledge) -> Ask {
        Ask {
            order: self.order_id(buyer),
            buyer: buyer.clone(),
            quantity: Quantity::new(units).unwrap(),
            acknowledge,
            within: Duration::from_secs(10),
        }
    }

    pub async fn order(&self, ask: Ask) -> Result<Outcome, StockError> {
        self.stock.item(&self.item).order(ask).await
    }

    pub async fn row(&self, segment: u16) -> SegmentRow {
        self.ledger
            .segments(&self.item.id)
            .await
            .unwrap()
            .swap_remove(segment.into())
    }

    pub async fn state(&self, order: OrderId) -> Option<OrderState> {
        self.ledger
            .order(order)
            .await
            .unwrap()
            .map(|order| order.state)
    }

    pub fn outbox(&self, segment: u16) -> String {
        format!("outbox:{{{}:{segment}}}", self.item.id)
    }

    /// Waits until the ledger has what Redis has of this segment.
    pub async fn drained(&self, segment: u16) {
        let key = self.segment(segment);
        eventually(&format!("recording all of {key}"), async || {
            let Ok(inspection) = self.stock.inspect(&key, InspectionEntries::None).await else {
                return false;
            };
            Some(inspection.last) == self.row(segment).await.checkpoint
        })
        .await;
    }

    pub async fn all_drained(&self) {
        for segment in 0..self.item.segments {
            self.drained(segment).await;
        }
    }

    /// The identity: by segment within the ledger, and between the ledger and Redis.
    pub async fn audit(&self) {
        let totals = self.ledger.totals(&self.item.id).await.unwrap().unwrap();
        let mut held = BTreeMap::new();
        for (row, by_orders) in totals.segments.iter().zip(&totals.by_orders) {
            assert_eq!(
                row.available + row.held + row.confirmed + row.returning,
                row.allocated,
                "{}",
                row.key
            );
            assert_eq!(
                row.held, by_orders.held,
                "{}: units of held orders",
                row.key
            );
            held.insert(row.key.segment, row.held);
            if self.diverged.lock().unwrap().contains(&row.key.segment) {
                continue;
            }
            let from = row
                .checkpoint
                .map_or(InspectionEntries::All, InspectionEntries::From);
            let redis = self.stock.inspect(&row.key, from).await.unwrap();
            let behind = redis
                .entries
                .iter()
                .filter(|entry| Some(entry.id) > row.checkpoint);
            let effects: i64 = behind.filter_map(|entry| entry.change.effect()).sum();
            assert_eq!(
                redis.available,
                row.available.checked_add_signed(effects).unwrap(),
                "{}: drift",
                row.key
            );
        }
        assert_eq!(
            totals.segments.iter().map(|row| row.allocated).sum::<u64>(),
            self.item.stock
        );
    }
}

/// Orders, in turn from every home, a unit each.
pub async fn rush(
    sale: &Sale,
    from: &Stock,
    buyers: std::ops::Range<usize>,
    acknowledge: Acknowledge,
) -> Vec<(OrderId, Outcome)> {
    let item = from.item(&sale.item);
    let orders = buyers.map(|n| {
        let ask = sale.ask(&BuyerId::new(format!("buyer-{n}")).unwrap(), 1, acknowledge);
        let item = Arc::clone(&item);
        async move { (ask.order, item.order(ask).await.unwrap()) }
    });
    join_all(orders).await
}

pub fn is_held(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Held { .. })
}

/// Waits for something that comes soon, but not at once.
pub async fn eventually(what: &str, mut happened: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(15);
    while !happened().await {
        assert!(Instant::now() < deadline, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
