//! Each test runs in a [`TestEnv`] and ends with an audit of every item that it sold.

use std::{sync::Arc, time::Duration};

use ledger::Ledger;
use reconciler::ReconcilerSettings;
use recorder::RecorderSettings;
use testbed::Redis;
use testkit::{Backend, Database, TestEnv, shared_redis, show_logs};
use tokio_util::sync::CancellationToken;

/// Response timeout of stocks whose server is killed. A client that hears nothing of the failover
/// must give up and ask again.
const FAILOVER_RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for which [`quick`] requires a difference to stand before it repairs it.
pub const CONFIRMATION_PERIOD: Duration = Duration::from_millis(400);

/// Settings of a reconciler that polls often, repairs after [`CONFIRMATION_PERIOD`], and moves no
/// units between segments.
pub fn quick() -> ReconcilerSettings {
    ReconcilerSettings {
        poll_interval: Duration::from_millis(20),
        expiry_interval: Duration::from_millis(20),
        return_delay: Duration::from_millis(100),
        confirmation_period: CONFIRMATION_PERIOD,
        balance: false,
        ..ReconcilerSettings::default()
    }
}

/// Runs a test on the shared Redis server, and then compares Redis with the ledger.
pub async fn run<T: AsyncFnOnce(&Arc<TestEnv>)>(backend: Backend, test: T) {
    let env = open(backend, shared_redis().await.url()).await;
    test(&env).await;
    close(&env).await;
}

/// [`run`] on a Redis server that the test may break or empty.
pub async fn run_on_own_redis<T: AsyncFnOnce(&Arc<TestEnv>)>(backend: Backend, test: T) {
    let redis = Redis::start().await.unwrap();
    let env = open(backend, redis.url()).await;
    test(&env).await;
    close(&env).await;
}

/// An environment with a new database, on this Redis.
pub async fn open(backend: Backend, redis_url: String) -> Arc<TestEnv> {
    show_logs();
    Arc::new(TestEnv::at(Database::new(backend).await, redis_url).await)
}

/// [`open`] on servers of which one is killed.
pub async fn open_on_failover(backend: Backend, redis_url: String) -> Arc<TestEnv> {
    show_logs();
    let env = TestEnv::at(Database::new(backend).await, redis_url).await;
    Arc::new(env.with_response_timeout(FAILOVER_RESPONSE_TIMEOUT))
}

/// Starts a recorder on this ledger. It ends with the test.
pub async fn record_on(env: &TestEnv, ledger: Arc<dyn Ledger>, settings: RecorderSettings) {
    let stock = env.stock().await;
    tokio::spawn(recorder::run(
        stock,
        ledger,
        settings,
        CancellationToken::new(),
    ));
}

/// Waits until every item is at rest, stops the services, and audits every item.
pub async fn close(env: &TestEnv) {
    let sales = env.take_sales();
    for sale in &sales {
        sale.comes_to_rest().await;
    }
    env.stop_services().await;
    for sale in &sales {
        sale.assert_settled().await;
        sale.stock.shutdown().await;
    }
}
