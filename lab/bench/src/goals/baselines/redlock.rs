//! A lock on five nodes for each order: Stockade's own, and that of the crate `rslock`. The stock
//! is a number on a sixth server.

use std::time::Duration;

use anyhow::{Result, anyhow};
use async_trait::async_trait;
use lock::{Lock, Redlock};
use rslock::LockManager;

use super::{
    counter::Counters,
    patience::{Doors, Pause},
    test_env::TestEnv,
    variant::Variant,
};
use crate::goals::crowd::Reply;

const NAME: &str = "item";
const LEASE: Duration = Duration::from_secs(5);
/// Timeout of one attempt with Stockade's lock. The variant checks between attempts whether it is
/// closed.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(500);

/// The lock of Stockade.
pub struct Ours {
    lock: Redlock,
    counters: Counters,
    doors: Doors,
}

impl Ours {
    pub async fn open(env: &TestEnv, retry: Duration, stock: u64) -> Result<Self> {
        let lock = env.nodes.redlock(Some(retry)).await?;
        Ok(Self {
            lock,
            counters: Counters::open(&env.emptied().await?, 1, stock).await?,
            doors: Doors::default(),
        })
    }
}

#[async_trait]
impl Variant for Ours {
    async fn buy(&self, _: u64) -> Result<Reply> {
        let guard = loop {
            match self.lock.acquire_within(NAME, ATTEMPT_TIMEOUT).await {
                Ok(guard) => break guard,
                Err(error) if !error.is_retryable() => return Err(error.into()),
                Err(_) if self.doors.are_closed() => return Ok(Reply::Refused),
                Err(_) => {}
            }
        };
        let reply = self.counters.take(0).await?;
        guard.release().await?;
        Ok(reply)
    }

    fn close(&self) {
        self.doors.close();
    }

    async fn audit(&self, stock: u64, accepted: u64) -> Result<(i64, u64)> {
        self.counters.audit(stock, accepted).await
    }
}

/// The lock of `rslock`. It waits between two attempts as the crate itself does, but
/// checks between them whether it is closed.
pub struct Theirs {
    manager: LockManager,
    pause: Pause,
    counters: Counters,
    doors: Doors,
}

impl Theirs {
    pub async fn open(env: &TestEnv, pause: Pause, stock: u64) -> Result<Self> {
        let mut manager = LockManager::new(env.nodes.urls());
        manager.set_retry(1, Duration::ZERO);
        Ok(Self {
            manager,
            pause,
            counters: Counters::open(&env.emptied().await?, 1, stock).await?,
            doors: Doors::default(),
        })
    }
}

#[async_trait]
impl Variant for Theirs {
    async fn buy(&self, _: u64) -> Result<Reply> {
        let lock = loop {
            match self.manager.lock(NAME.as_bytes(), LEASE).await {
                Ok(lock) => break lock,
                Err(rslock::LockError::Unavailable) if self.doors.are_closed() => {
                    return Ok(Reply::Refused);
                }
                Err(rslock::LockError::Unavailable) => self.pause.up_to().await,
                Err(error) => return Err(anyhow!("rslock: {error}")),
            }
        };
        let reply = self.counters.take(0).await?;
        lock.release().await;
        Ok(reply)
    }

    fn close(&self) {
        self.doors.close();
    }

    async fn audit(&self, stock: u64, accepted: u64) -> Result<(i64, u64)> {
        self.counters.audit(stock, accepted).await
    }
}
