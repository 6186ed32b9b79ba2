//! The common lock on a master, with and without WAIT.

use std::time::{Duration, Instant};

use anyhow::Result;
use async_trait::async_trait;
use lock::FencingToken;
use uuid::Uuid;

use crate::{
    cases::{last_unit::Locking, plain_lock},
    pace::Pace,
    test_env,
};

pub(super) const LOCK: &str = "item:42";

/// Time for which it retries, in scenario time.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time to wait for a replica. A replica in sync answers within a millisecond, on a busy machine
/// within a hundred.
const WAIT_MS: u64 = 5000;

/// A lock on the current master.
pub(super) struct MasterLock {
    url: String,
    /// Whether the lock counts only after one replica has confirmed it.
    waits: bool,
    pace: Pace,
    lease: Duration,
    value: String,
}

impl MasterLock {
    pub(super) fn new(url: String, waits: bool, pace: Pace, lease: Duration) -> Self {
        Self {
            url,
            waits,
            pace,
            lease,
            value: Uuid::new_v4().to_string(),
        }
    }

    async fn try_lock(&self) -> Result<bool> {
        let mut connection = test_env::connect(&self.url).await?;
        let lease_ms = self.pace.real_ms(self.lease);
        let is_set = plain_lock::set_nx_px(&mut connection, LOCK, &self.value, lease_ms).await?;
        if !is_set || !self.waits {
            return Ok(is_set);
        }
        // WAIT counts the writes of its own connection only, so it must use the connection of SET.
        let replicas: u64 = redis::cmd("WAIT")
            .arg(1)
            .arg(WAIT_MS)
            .query_async(&mut connection)
            .await?;
        Ok(replicas >= 1)
    }
}

#[async_trait]
impl Locking for MasterLock {
    async fn lock(&mut self) -> Result<Option<Option<FencingToken>>> {
        let until = Instant::now() + self.pace.real(ACQUIRE_TIMEOUT);
        loop {
            if self.try_lock().await? {
                return Ok(Some(None));
            }
            if Instant::now() > until {
                return Ok(None);
            }
            self.pace.sleep(RETRY_INTERVAL).await;
        }
    }

    async fn unlock(&mut self) -> Result<()> {
        let mut connection = match test_env::connect(&self.url).await {
            Ok(connection) => connection,
            // The master that had the lock is dead.
            Err(_) => return Ok(()),
        };
        plain_lock::compare_and_delete(&mut connection, LOCK, &self.value).await?;
        Ok(())
    }
}
