//! Locks that break their promises, to show that the matrix notices.

use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use lock::{Capabilities, FencingToken, Lock, RedisLockBuilder};

use super::{Client, Held, Opening};
use crate::matrix::contestant::Contestant;

/// A lock of one Redis, and what is made of it.
pub(super) struct Broken {
    honest: Box<dyn Lock>,
    contestant: Contestant,
    lease: Duration,
}

struct Lie {
    _honest: Option<lock::Guard>,
    token: FencingToken,
}

impl Broken {
    pub(super) fn open(opening: &Opening) -> Result<Self> {
        let lease = opening.lease();
        let honest = Box::new(
            RedisLockBuilder::new(opening.url()?)
                .lease(lease)
                .server_timeout(lease / 3)
                .build()?,
        );
        Ok(Self {
            honest,
            contestant: opening.contestant,
            lease,
        })
    }
}

#[async_trait]
impl Client for Broken {
    fn capabilities(&self) -> Option<Capabilities> {
        Some(self.honest.capabilities())
    }

    async fn try_take(&self, name: &str) -> Result<Option<Box<dyn Held>>> {
        self.take(name, Duration::ZERO).await
    }

    async fn take(&self, name: &str, patience: Duration) -> Result<Option<Box<dyn Held>>> {
        if self.contestant == Contestant::AlwaysGranted {
            // Tokens rise, and nobody is kept out.
            let guard = self.honest.acquire_within(name, self.lease).await;
            let token = match guard {
                Ok(guard) => {
                    let token = guard.token();
                    let _ = guard.release().await;
                    token
                }
                Err(_) => return Ok(None),
            };
            return Ok(Some(Box::new(Lie {
                _honest: None,
                token,
            })));
        }
        let guard = self.honest.acquire_within(name, patience).await.ok();
        let token = FencingToken::new(7).context("it is one")?;
        Ok(guard.map(|guard| -> Box<dyn Held> {
            Box::new(Lie {
                _honest: Some(guard),
                token,
            })
        }))
    }
}

#[async_trait]
impl Held for Lie {
    fn token(&self) -> Option<FencingToken> {
        Some(self.token)
    }

    async fn give_back(self: Box<Self>) {}
}
