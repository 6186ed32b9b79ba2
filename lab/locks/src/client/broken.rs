//! Locks that break their promises, to test that the verdict notices.

use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use lock::{Capabilities, FencingToken, Guard, Lock, RedisLock, RedisLockBuilder};

use super::api::{Client, HeldLock, LockSettings};
use crate::backend::Backend;

/// Token of every holder of [`Backend::SameToken`].
const SAME_TOKEN: i64 = 7;

/// A correct lock on one Redis server, misused.
pub(super) struct Broken {
    correct: RedisLock,
    backend: Backend,
    lease: Duration,
}

struct BrokenGuard {
    /// Keeps the correct lock held.
    _guard: Option<Guard>,
    token: FencingToken,
}

impl Broken {
    pub(super) fn open(settings: &LockSettings) -> Result<Self> {
        let lease = settings.lease();
        let builder = RedisLockBuilder::new(settings.url()?)
            .lease(lease)
            .server_timeout(lease / 3);
        Ok(Self {
            correct: builder.build()?,
            backend: settings.backend,
            lease,
        })
    }

    /// Releases the correct lock immediately. Tokens rise, but the lock excludes no other holder.
    async fn acquire_and_release(&self, name: &str) -> Option<BrokenGuard> {
        let guard = self.correct.acquire_within(name, self.lease).await.ok()?;
        let token = guard.token();
        let _ = guard.release().await;
        Some(BrokenGuard {
            _guard: None,
            token,
        })
    }

    /// Excludes other holders, but gives each the same token.
    async fn acquire_with_same_token(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<BrokenGuard>> {
        let token = FencingToken::new(SAME_TOKEN).context("token: expected a positive number")?;
        let guard = self.correct.acquire_within(name, timeout).await.ok();
        Ok(guard.map(|guard| BrokenGuard {
            _guard: Some(guard),
            token,
        }))
    }
}

#[async_trait]
impl Client for Broken {
    fn capabilities(&self) -> Option<Capabilities> {
        Some(self.correct.capabilities())
    }

    async fn try_acquire(&self, name: &str) -> Result<Option<Box<dyn HeldLock>>> {
        self.acquire(name, Duration::ZERO).await
    }

    async fn acquire(&self, name: &str, timeout: Duration) -> Result<Option<Box<dyn HeldLock>>> {
        let held = if self.backend == Backend::AlwaysGranted {
            self.acquire_and_release(name).await
        } else {
            self.acquire_with_same_token(name, timeout).await?
        };
        Ok(held.map(|held| -> Box<dyn HeldLock> { Box::new(held) }))
    }
}

#[async_trait]
impl HeldLock for BrokenGuard {
    fn token(&self) -> Option<FencingToken> {
        Some(self.token)
    }

    async fn release(self: Box<Self>) {}
}
