//! Reconcilers in a test environment.

use std::sync::Arc;

use ledger::Ledger;
use lock::{Lock, RedisLockBuilder};
use reconciler::ReconcilerSettings;

use crate::{Running, TestEnv, shared_redis};

/// An item lock on the shared Redis server, which no test breaks. Items have distinct names, so one
/// server can keep the locks of all tests.
pub async fn shared_lock() -> Arc<dyn Lock> {
    let url = shared_redis().await.url();
    Arc::new(RedisLockBuilder::new(url).build().unwrap())
}

impl TestEnv {
    /// Starts a reconciler that runs until [`TestEnv::stop_services`].
    pub async fn reconcile(&self, settings: ReconcilerSettings) {
        self.reconcile_with(settings, shared_lock().await).await;
    }

    /// [`TestEnv::reconcile`] with another lock.
    pub async fn reconcile_with(&self, settings: ReconcilerSettings, lock: Arc<dyn Lock>) {
        let reconciler = self.reconciler(settings, lock).await;
        self.run_until_end(reconciler);
    }

    /// [`TestEnv::reconcile`] with another ledger, for example one that injects faults.
    pub async fn reconcile_on(&self, ledger: Arc<dyn Ledger>, settings: ReconcilerSettings) {
        let lock = shared_lock().await;
        let reconciler = self.reconciler_on(ledger, settings, lock).await;
        self.run_until_end(reconciler);
    }

    /// Starts a reconciler with its own connections. The caller stops it.
    pub async fn reconciler(&self, settings: ReconcilerSettings, lock: Arc<dyn Lock>) -> Running {
        self.reconciler_on(self.ledger().await, settings, lock)
            .await
    }

    async fn reconciler_on(
        &self,
        ledger: Arc<dyn Ledger>,
        settings: ReconcilerSettings,
        lock: Arc<dyn Lock>,
    ) -> Running {
        let stock = self.stock().await;
        Running::start(Arc::clone(&stock), |stop| {
            reconciler::run(stock, ledger, lock, settings, stop)
        })
    }
}
