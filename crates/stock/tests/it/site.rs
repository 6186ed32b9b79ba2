//! Where a test sells: one Redis server, or a cluster of three masters. All tests of the binary
//! share the two.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use redis::aio::MultiplexedConnection;
use stock::{Stock, StockSettings, connection::Connection};
use testbed::{Redis, RedisCluster, timeout};
use tokio::sync::OnceCell;

use crate::{ablation, audit, sale::Sale};

/// The servers live as long as the process, and no longer: `testbed` sees to that. A connection
/// lives as long as its test's runtime.
static SINGLE: OnceCell<Redis> = OnceCell::const_new();
static CLUSTER: OnceCell<RedisCluster> = OnceCell::const_new();

/// Runs a test and then audits every sale that it opened.
pub async fn run<T: AsyncFnOnce(Arc<Site>)>(site: Site, test: T) {
    let site = Arc::new(site);
    test(Arc::clone(&site)).await;
    close(&site).await;
}

/// Ends what the test has started, and audits every sale that it opened.
pub async fn close(site: &Site) {
    let instances = std::mem::take(&mut *site.instances.lock().unwrap());
    for instance in instances {
        // Batches of orders whose callers are gone.
        instance.shutdown().await;
    }
    let sales = std::mem::take(&mut *site.sales.lock().unwrap());
    for sale in sales {
        audit::audit(&sale).await;
    }
}

/// Makes two tests of a function: on one server and on a cluster.
macro_rules! on_both {
    ($test:ident) => {
        mod $test {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn single() {
                $crate::site::run($crate::site::Site::single().await, super::$test).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn cluster() {
                $crate::site::run($crate::site::Site::cluster().await, super::$test).await;
            }
        }
    };
}

/// Makes a test of a function that needs a server of its own.
macro_rules! on_own_server {
    ($test:ident) => {
        mod $test {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn own_server() {
                let mut server = testbed::Redis::start().await.unwrap();
                let site = $crate::site::Site::at(server.url(), vec![server.url()]).await;
                $crate::site::run(site, async |site| super::$test(site, &mut server).await).await;
            }
        }
    };
}

pub use testkit_macros::tested;
pub(crate) use {on_both, on_own_server};

/// Servers, and a connection to look at them from outside.
pub struct Site {
    pub url: String,
    /// Each master by itself.
    pub masters: Vec<String>,
    pub redis: Connection,
    pub sales: Mutex<Vec<Arc<Sale>>>,
    /// How long an instance waits for Redis.
    response_timeout: Duration,
    instances: Mutex<Vec<Arc<Stock>>>,
}

impl Site {
    pub async fn single() -> Self {
        let server = SINGLE.get_or_try_init(Redis::start).await.unwrap();
        Self::at(server.url(), vec![server.url()]).await
    }

    pub async fn cluster() -> Self {
        let cluster = CLUSTER
            .get_or_try_init(|| RedisCluster::start(3))
            .await
            .unwrap();
        Self::at(
            cluster.url(),
            cluster.nodes().iter().map(Redis::url).collect(),
        )
        .await
    }

    pub async fn at(url: String, masters: Vec<String>) -> Self {
        ablation::install();
        let redis = connect(&masters).await;
        Self {
            url,
            masters,
            redis,
            sales: Mutex::default(),
            response_timeout: timeout(),
            instances: Mutex::default(),
        }
    }

    /// For a test that makes a server silent: its instances soon request again what is not
    /// answered.
    pub fn with_silent_servers(self) -> Self {
        Self {
            response_timeout: Duration::from_secs(2),
            ..self
        }
    }

    /// The defaults, but spillovers are forgotten soon, and Redis may be slow on a busy machine.
    pub fn settings(&self) -> StockSettings {
        let mut settings = StockSettings {
            forget_margin: Duration::from_millis(300),
            ..patient(&self.url)
        };
        settings.redis.connect_timeout = self.response_timeout;
        settings.redis.response_timeout = self.response_timeout;
        settings
    }

    /// One more process, as it were.
    pub async fn instance(&self) -> Arc<Stock> {
        self.instance_with(self.settings()).await
    }

    pub async fn instance_with(&self, settings: StockSettings) -> Arc<Stock> {
        let stock = Stock::connect(settings).await.unwrap();
        self.instances.lock().unwrap().push(Arc::clone(&stock));
        stock
    }

    /// A name that no other test has.
    pub fn fresh_name(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        format!("item-{}", COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The defaults for a server that may be slow.
pub fn patient(url: impl Into<String>) -> StockSettings {
    let mut settings = StockSettings::new(url);
    settings.redis.connect_timeout = timeout();
    settings.redis.response_timeout = timeout();
    settings
}

/// A connection of a test's own.
pub async fn raw(url: &str) -> MultiplexedConnection {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout()))
        .set_response_timeout(Some(timeout()));
    let client = redis::Client::open(url).unwrap();
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    connecting.await.unwrap()
}

async fn connect(masters: &[String]) -> Connection {
    if let [url] = masters {
        let client = redis::Client::open(url.as_str()).unwrap();
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout()))
            .set_response_timeout(Some(timeout()));
        let connection = stock::connection::Reconnecting::open(client, config).await;
        return Connection::Single(connection.unwrap());
    }
    let client = redis::cluster::ClusterClient::builder(masters.to_vec())
        .connection_timeout(timeout())
        .response_timeout(timeout())
        .build()
        .unwrap();
    Connection::Cluster(stock::connection::Cluster::open(client).await.unwrap())
}
