//! The crate `rslock`, as its documentation says. It has no tokens, and extends nothing by itself.

use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use rslock::{Lock, LockManager};
use tokio::time::timeout;

use super::{Client, Held, Opening};

pub(super) struct Theirs {
    manager: LockManager,
    /// Tries three times otherwise.
    impatient: LockManager,
    lease: Duration,
}

impl Theirs {
    pub(super) fn open(opening: &Opening) -> Self {
        let manager = LockManager::new(opening.urls.clone());
        let mut impatient = manager.clone();
        impatient.set_retry(1, Duration::ZERO);
        Self {
            manager,
            impatient,
            lease: opening.lease(),
        }
    }
}

#[async_trait]
impl Client for Theirs {
    async fn try_take(&self, name: &str) -> Result<Option<Box<dyn Held>>> {
        Ok(self
            .impatient
            .lock(name.as_bytes(), self.lease)
            .await
            .ok()
            .map(|lock| -> Box<dyn Held> { Box::new(lock) }))
    }

    async fn take(&self, name: &str, patience: Duration) -> Result<Option<Box<dyn Held>>> {
        let taken = timeout(
            patience,
            self.manager.acquire_no_guard(name.as_bytes(), self.lease),
        )
        .await;
        Ok(taken
            .ok()
            .and_then(Result::ok)
            .map(|lock| -> Box<dyn Held> { Box::new(lock) }))
    }
}

#[async_trait]
impl Held for Lock {
    async fn give_back(self: Box<Self>) {
        self.release().await;
    }
}
