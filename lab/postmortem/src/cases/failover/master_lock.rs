//! The common lock on a master, with and without WAIT.

use std::time::{Duration, Instant};

use anyhow::Result;
use async_trait::async_trait;
use lock::FencingToken;
use redis::Script;
use uuid::Uuid;

use crate::{cases::last_unit::Locking, pace::Pace, test_env};

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
        let mut set = redis::cmd("SET");
        set.arg(LOCK)
            .arg(&self.value)
            .arg("NX")
            .arg("PX")
            .arg(self.pace.real_ms(self.lease));
        let set: Option<String> = set.query_async(&mut connection).await?;
        if set.is_none() || !self.waits {
            return Ok(set.is_some());
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
        let script = Script::new(
            "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0",
        );
        let mut connection = match test_env::connect(&self.url).await {
            Ok(connection) => connection,
            // The master that had the lock is dead.
            Err(_) => return Ok(()),
        };
        Ok(script
            .key(LOCK)
            .arg(&self.value)
            .invoke_async(&mut connection)
            .await?)
    }
}
