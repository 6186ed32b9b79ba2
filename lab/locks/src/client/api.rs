//! What the comparison needs of a lock.

use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;
use lock::{Capabilities, FencingToken};
use serde::{Deserialize, Serialize};

use crate::backend::Backend;

/// Which lock to open, and on which servers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LockSettings {
    pub(crate) backend: Backend,
    pub(crate) urls: Vec<String>,
    pub(crate) lease_ms: u64,
}

impl LockSettings {
    pub(crate) fn new(backend: Backend, urls: Vec<String>, lease: Duration) -> Self {
        Self {
            backend,
            urls,
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
        }
    }

    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// The address of a lock that one server keeps.
    pub(super) fn url(&self) -> Result<&str> {
        match self.urls.as_slice() {
            [url] => Ok(url),
            urls => bail!(
                "lock settings: urls has {} entries, expected one for {}",
                urls.len(),
                self.backend
            ),
        }
    }
}

/// A client of one lock service.
#[async_trait]
pub(crate) trait Client: Send + Sync {
    /// What the lock promises. `None`: nothing.
    fn capabilities(&self) -> Option<Capabilities> {
        None
    }

    /// Tries once, or as close to once as the lock allows. `None`: not acquired.
    async fn try_acquire(&self, name: &str) -> Result<Option<Box<dyn HeldLock>>>;

    /// Waits for the lock until `timeout`. `None`: not acquired.
    async fn acquire(&self, name: &str, timeout: Duration) -> Result<Option<Box<dyn HeldLock>>>;

    /// Reports a token that a store has seen. Tokens granted later must be higher.
    fn note_token(&self, _name: &str, _token: FencingToken) -> Result<()> {
        Ok(())
    }
}

/// A lock that a client has acquired. The lock may have been lost since.
#[async_trait]
pub(crate) trait HeldLock: Send {
    /// The token to present to a store. `None`: the lock has no tokens.
    fn token(&self) -> Option<FencingToken> {
        None
    }

    /// Extends the lease for as long as possible, and returns when the lock is lost. Never returns
    /// for a lock that does not detect loss.
    async fn lost(&mut self) {
        std::future::pending().await
    }

    /// Releases the lock. Releasing a lost lock is not an error.
    async fn release(self: Box<Self>);
}
