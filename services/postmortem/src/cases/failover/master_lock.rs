//! The lock on a master, as everybody writes it; and with WAIT.

use std::time::{Duration, Instant};

use anyhow::Result;
use async_trait::async_trait;
use lock::FencingToken;
use redis::Script;
use uuid::Uuid;

use crate::{cases::last_unit::Locking, pace::Pace, stage};

pub(super) const LOCK: &str = "item:42";

/// How long it tries, in the story.
const PATIENCE: Duration = Duration::from_secs(5);
const TRY_EVERY: Duration = Duration::from_secs(1);
/// How long replicas are waited for. A replica that follows answers within a millisecond, on a busy machine within a hundred.
const WAIT_MS: u64 = 5000;

/// A lock on the present master.
pub(super) struct MasterLock {
    url: String,
    /// It counts only if one replica has it.
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
        let mut connection = stage::connect(&self.url).await?;
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
        // On the same connection: WAIT counts the writes of its own one only.
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
        let until = Instant::now() + self.pace.real(PATIENCE);
        loop {
            if self.try_lock().await? {
                return Ok(Some(None));
            }
            if Instant::now() > until {
                return Ok(None);
            }
            self.pace.sleep(TRY_EVERY).await;
        }
    }

    async fn unlock(&mut self) -> Result<()> {
        let script = Script::new(
            "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0",
        );
        let mut connection = match stage::connect(&self.url).await {
            Ok(connection) => connection,
            // The master that had it is dead.
            Err(_) => return Ok(()),
        };
        Ok(script
            .key(LOCK)
            .arg(&self.value)
            .invoke_async(&mut connection)
            .await?)
    }
}
