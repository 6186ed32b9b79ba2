//! Each test runs in a [`TestEnv`] and ends with an audit of every item that it sold.

use std::{sync::Arc, time::Duration};

use recorder::RecorderSettings;
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

/// Settings of a recorder that hears of entries by wake-ups alone.
pub fn without_sweeps() -> RecorderSettings {
    RecorderSettings {
        // Longer than a test.
        sweep_interval: Duration::from_secs(3600),
        ..RecorderSettings::default()
    }
}
