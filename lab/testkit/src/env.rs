//! Redis, a ledger, and the services between them, for one test.

#[cfg(feature = "reconciler")]
mod reconcile;

use std::{
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::Item;
use ledger::{Created, Ledger};
#[cfg(feature = "reconciler")]
pub use reconcile::shared_lock;
use recorder::RecorderSettings;
use redis::{Cmd, FromRedisValue, Pipeline};
use stock::{RedisSettings, Stock, StockSettings};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{Backend, Database, Sale, fresh_item_id, in_time, item, shared_redis, timeout};

const FORGET_MARGIN: Duration = Duration::from_millis(200);

/// Redis, a ledger, and the services between them, for one test.
///
/// [`TestEnv::take_sales`] returns the items that the test has sold, for the audit at its end.
pub struct TestEnv {
    /// URL of the stock's Redis.
    pub redis_url: String,
    /// Database of the ledger.
    pub database: Database,
    response_timeout: Option<Duration>,
    services: Mutex<Vec<Running>>,
    sales: Mutex<Vec<Arc<Sale>>>,
}

impl TestEnv {
    /// An environment on the Redis server that tests share.
    pub async fn new(backend: Backend) -> Self {
        Self::at(Database::new(backend).await, shared_redis().await.url()).await
    }

    /// An environment in this database, in which it creates the schema, and on this Redis.
    pub async fn at(database: Database, redis_url: String) -> Self {
        database.migrate().await;
        Self {
            redis_url,
            database,
            response_timeout: None,
            services: Mutex::default(),
            sales: Mutex::default(),
        }
    }

    /// Makes the stock wait at most this long for a reply of Redis, for tests that break a server.
    pub fn with_response_timeout(self, timeout: Duration) -> Self {
        Self {
            response_timeout: Some(timeout),
            ..self
        }
    }

    /// A ledger with its own connections, as another process would have.
    pub async fn ledger(&self) -> Arc<dyn Ledger> {
        self.database.ledger().await
    }

    /// A stock with its own connections, as another process would have. Its settings let tests wait
    /// a few hundred milliseconds instead of seconds.
    pub async fn stock(&self) -> Arc<Stock> {
        let mut redis = RedisSettings::new(&self.redis_url);
        redis.response_timeout = self.response_timeout.unwrap_or_else(timeout);
        redis.connect_timeout = redis.response_timeout;
        let settings = StockSettings {
            redis,
            forget_margin: FORGET_MARGIN,
            ..StockSettings::new("")
        };
        Stock::connect(settings).await.unwrap()
    }

    /// Starts a recorder with its own connections. The caller stops it.
    pub async fn recorder(&self, settings: RecorderSettings) -> Running {
        let (stock, ledger) = (self.stock().await, self.ledger().await);
        Running::start(Arc::clone(&stock), |stop| {
            recorder::run(stock, ledger, settings, stop)
        })
    }

    /// Starts a recorder that runs until [`TestEnv::stop_services`].
    pub async fn record(&self) {
        let recorder = self.recorder(RecorderSettings::default()).await;
        self.run_until_end(recorder);
    }

    fn run_until_end(&self, service: Running) {
        self.services.lock().unwrap().push(service);
    }

    /// Stops the services in the order of their start.
    pub async fn stop_services(&self) {
        let services = mem::take(&mut *self.services.lock().unwrap());
        for service in services {
            service.stop().await;
        }
    }

    /// Puts an item on sale.
    pub async fn sell(&self, units: u64, segments: u16) -> Arc<Sale> {
        self.sell_with(units, segments, |item| item).await
    }

    /// Puts an item on sale that `terms` changes before.
    pub async fn sell_with(
        &self,
        units: u64,
        segments: u16,
        terms: impl FnOnce(Item) -> Item,
    ) -> Arc<Sale> {
        let sale = self.create_with(units, segments, terms).await;
        // A recorder that opens unopened segments may do this first; both may succeed.
        sale.stock.open(&sale.item).await.unwrap();
        sale
    }

    /// Creates an item without opening its segments, as a process does that dies in between.
    pub async fn create(&self, units: u64, segments: u16) -> Arc<Sale> {
        self.create_with(units, segments, |item| item).await
    }

    async fn create_with(
        &self,
        units: u64,
        segments: u16,
        terms: impl FnOnce(Item) -> Item,
    ) -> Arc<Sale> {
        let item = terms(item(fresh_item_id(), units, segments));
        let ledger = self.ledger().await;
        let created = ledger.create_item(&item).await.unwrap();
        assert!(matches!(created, Created::New(_)));
        let stock = self.stock().await;
        let sale = Arc::new(Sale::new(item, ledger, stock, self.redis_url.clone()));
        self.sales.lock().unwrap().push(Arc::clone(&sale));
        sale
    }

    /// The items that were sold since the last call.
    pub fn take_sales(&self) -> Vec<Arc<Sale>> {
        mem::take(&mut *self.sales.lock().unwrap())
    }

    /// Runs a Redis command without the stock.
    pub async fn redis<T: FromRedisValue>(&self, command: &Cmd) -> T {
        let mut connection = connect(&self.redis_url).await;
        command.query_async(&mut connection).await.unwrap()
    }

    /// Runs Redis commands without the stock.
    pub async fn redis_pipe<T: FromRedisValue>(&self, commands: &Pipeline) -> T {
        let mut connection = connect(&self.redis_url).await;
        commands.query_async(&mut connection).await.unwrap()
    }

    /// Executes statements without the ledger.
    pub async fn sql(&self, statements: &str) {
        self.database.execute(statements).await.unwrap();
    }

    /// Executes the statements of this database's dialect without the ledger.
    pub async fn sql_of(&self, postgres: &str, sqlite: &str) {
        match self.database.backend {
            Backend::Postgres => self.sql(postgres).await,
            Backend::Sqlite => self.sql(sqlite).await,
        }
    }
}

pub(crate) async fn connect(url: &str) -> redis::aio::MultiplexedConnection {
    testbed::patient_connection(url).await.unwrap()
}

/// A running service and its stock.
pub struct Running {
    stop: CancellationToken,
    /// The task of the service.
    pub task: JoinHandle<()>,
    stock: Arc<Stock>,
}

impl Running {
    fn start<F: Future<Output = ()> + Send + 'static>(
        stock: Arc<Stock>,
        service: impl FnOnce(CancellationToken) -> F,
    ) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(service(stop.clone()));
        Self { stop, task, stock }
    }

    /// Stops the service, which must end.
    pub async fn stop(self) {
        self.stop.cancel();
        in_time("the end of the service", self.task).await.unwrap();
        self.stock.shutdown().await;
    }
}
