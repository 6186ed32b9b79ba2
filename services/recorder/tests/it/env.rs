//! Each test runs in a [`TestEnv`] and ends with an audit of every item that it sold.

use std::sync::Arc;
use testkit::{Backend, TestEnv};

/// Runs a test and then compares Redis with the ledger.
pub async fn run<T: AsyncFnOnce(&Arc<TestEnv>)>(backend: Backend, test: T) {
    let env = Arc::new(TestEnv::new(backend).await);
    test(&env).await;
    audit(&env).await;
}

/// Audits every item that the test has sold.
pub async fn audit(env: &TestEnv) {
    for sale in env.take_sales() {
        sale.assert_recorded().await;
        sale.stock.shutdown().await;
    }
}
