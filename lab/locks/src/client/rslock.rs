//! The crate `rslock`, used as its documentation says. It has no tokens and no automatic extension.

use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use rslock::{Lock, LockManager};
use tokio::time::timeout as within;

use super::api::{Client, HeldLock, LockSettings};

pub(super) struct Rslock {
    manager: LockManager,
    /// Tries once. The default is three times.
    single_try: LockManager,
    lease: Duration,
}

impl Rslock {
    pub(super) fn open(settings: &LockSettings) -> Self {
        let manager = LockManager::new(settings.urls.clone());
        let mut single_try = manager.clone();
        single_try.set_retry(1, Duration::ZERO);
        Self {
            manager,
            single_try,
            lease: settings.lease(),
        }
    }
}

#[async_trait]
impl Client for Rslock {
    async fn try_acquire(&self, name: &str) -> Result<Option<Box<dyn HeldLock>>> {
        let acquired = self.single_try.lock(name.as_bytes(), self.lease).await;
        Ok(acquired.ok().map(boxed))
    }

    async fn acquire(&self, name: &str, timeout: Duration) -> Result<Option<Box<dyn HeldLock>>> {
        let acquire = self.manager.acquire_no_guard(name.as_bytes(), self.lease);
        let acquired = within(timeout, acquire).await;
        Ok(acquired.ok().and_then(Result::ok).map(boxed))
    }
}

fn boxed(lock: Lock) -> Box<dyn HeldLock> {
    Box::new(lock)
}

#[async_trait]
impl HeldLock for Lock {
    async fn release(self: Box<Self>) {
        Lock::release(*self).await;
    }
}
