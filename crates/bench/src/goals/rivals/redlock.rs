//! A lock on five nodes for each order, Stockade's own and the one of the crate `rslock`; the stock is a number on a sixth server.

use std::time::Duration;

use anyhow::{Result, anyhow};
use async_trait::async_trait;
use lock::Redlock;
use rslock::LockManager;

use super::{
    counter::Counters,
    way::{Doors, Pause, Place, Way},
};
use crate::goals::crowd::Told;

const NAME: &str = "item";
const LEASE: Duration = Duration::from_secs(5);
/// How long one attempt of Stockade's lasts: it looks at the doors afterwards.
const PATIENCE: Duration = Duration::from_millis(500);

/// The lock of Stockade.
pub struct Ours {
    lock: Redlock,
    counters: Counters,
    doors: Doors,
}

impl Ours {
    pub async fn open(place: &Place, retry: Duration, stock: u64) -> Result<Self> {
        let lock = place.nodes.redlock(Some(retry)).await?;
        Ok(Self {
            lock,
            counters: Counters::open(&place.emptied().await?, 1, stock).await?,
            doors: Doors::default(),
        })
    }
}

#[async_trait]
impl Way for Ours {
    async fn buy(&self, _: u64) -> Result<Told> {
        let guard = loop {
            match self.lock.acquire_within(NAME, PATIENCE).await {
                Ok(guard) => break guard,
                Err(error) if !error.is_retryable() => return Err(error.into()),
                Err(_) if self.doors.are_closed() => return Ok(Told::Refused),
                Err(_) => {}
            }
        };
        let told = self.counters.take(0).await?;
        guard.release().await?;
        Ok(told)
    }

    fn close(&self) {
        self.doors.close();
    }

    async fn audit(&self, stock: u64, accepted: u64) -> Result<(i64, u64)> {
        self.counters.audit(stock, accepted).await
    }
}

/// The lock of `rslock`. It waits between two attempts as the crate itself does, but looks at the doors.
pub struct Theirs {
    manager: LockManager,
    pause: Pause,
    counters: Counters,
    doors: Doors,
}

impl Theirs {
    pub async fn open(place: &Place, pause: Pause, stock: u64) -> Result<Self> {
        let mut manager = LockManager::new(place.nodes.urls());
        manager.set_retry(1, Duration::ZERO);
        Ok(Self {
            manager,
            pause,
            counters: Counters::open(&place.emptied().await?, 1, stock).await?,
            doors: Doors::default(),
        })
    }
}

#[async_trait]
impl Way for Theirs {
    async fn buy(&self, _: u64) -> Result<Told> {
        let lock = loop {
            match self.manager.lock(NAME.as_bytes(), LEASE).await {
                Ok(lock) => break lock,
                Err(rslock::LockError::Unavailable) if self.doors.are_closed() => {
                    return Ok(Told::Refused);
                }
                Err(rslock::LockError::Unavailable) => self.pause.up_to().await,
                Err(error) => return Err(anyhow!("rslock: {error}")),
            }
        };
        let told = self.counters.take(0).await?;
        lock.release().await;
        Ok(told)
    }

    fn close(&self) {
        self.doors.close();
    }

    async fn audit(&self, stock: u64, accepted: u64) -> Result<(i64, u64)> {
        self.counters.audit(stock, accepted).await
    }
}
