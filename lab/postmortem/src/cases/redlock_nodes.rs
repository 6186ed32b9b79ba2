//! Five independent Redis servers, and two clients of them: Redlock as its documentation describes
//! it, and this library's.
//!
//! The first client cannot reach nodes 4 and 5, so its quorum is nodes 1 to 3. Only node 3, which
//! is in every other quorum too, then excludes other clients.

use std::time::{Duration, Instant};

use anyhow::Result;
use async_trait::async_trait;
use futures::future::join_all;
use lock::{FencingToken, Guard, Lock, LockError, Redlock, RedlockBuilder};
use testbed::{Proxy, Redis, Traffic};
use uuid::Uuid;

use super::{admission::open_admitted, last_unit::Locking, plain_lock};
use crate::pace::Pace;

const LOCK: &str = "item:42";
const QUORUM: usize = 3;
/// Time for which a client retries, in scenario time; much less than any lease.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit of one node. No node of these cases is slow, but a busy machine is.
const NODE_TIMEOUT: Duration = Duration::from_millis(400);

/// The first client's connections to the nodes.
pub(super) struct FirstClient {
    urls: Vec<String>,
    /// Proxies of nodes 4 and 5.
    beyond: [Proxy; 2],
}

impl FirstClient {
    /// Connects to all nodes; all of them are reachable at first.
    pub(super) async fn of(nodes: &[Redis]) -> Result<Self> {
        let beyond = [
            Proxy::start(nodes[3].port()).await?,
            Proxy::start(nodes[4].port()).await?,
        ];
        let mut urls: Vec<_> = nodes[..3].iter().map(Redis::url).collect();
        urls.extend(
            beyond
                .iter()
                .map(|proxy| format!("redis://127.0.0.1:{}", proxy.port())),
        );
        Ok(Self { urls, beyond })
    }

    /// Returns the addresses of the nodes.
    pub(super) fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Makes nodes 4 and 5 unreachable from now on.
    pub(super) fn lose_two(&self) {
        self.beyond
            .iter()
            .for_each(|proxy| proxy.set(Traffic::Reset));
    }
}

/// Redlock as documented: the same random value on all nodes, a majority, and the elapsed time
/// subtracted.
pub(super) struct PlainRedlock {
    urls: Vec<String>,
    pace: Pace,
    lease: Duration,
    value: String,
}

impl PlainRedlock {
    pub(super) fn new(urls: impl IntoIterator<Item = String>, pace: Pace, lease: Duration) -> Self {
        Self {
            urls: urls.into_iter().collect(),
            pace,
            lease,
            value: Uuid::new_v4().to_string(),
        }
    }

    async fn try_lock(&self) -> bool {
        let started = Instant::now();
        let lease_ms = self.pace.real_ms(self.lease);
        let votes = join_all(self.urls.iter().map(|url| set(url, &self.value, lease_ms))).await;
        let votes = votes
            .into_iter()
            .filter(|vote| matches!(vote, Ok(true)))
            .count();
        // The documented clock drift: 1 % and 2 ms.
        let valid_for = self
            .pace
            .real(self.lease)
            .mul_f64(0.99)
            .saturating_sub(Duration::from_millis(2));
        votes >= QUORUM && started.elapsed() < valid_for
    }

    async fn release(&self) {
        // A node that cannot be reached has not granted the lock.
        let _ = join_all(
            self.urls
                .iter()
                .map(|url| compare_and_delete(url, &self.value)),
        )
        .await;
    }
}

#[async_trait]
impl Locking for PlainRedlock {
    async fn lock(&mut self) -> Result<Option<Option<FencingToken>>> {
        let until = Instant::now() + self.pace.real(ACQUIRE_TIMEOUT);
        loop {
            if self.try_lock().await {
                return Ok(Some(None));
            }
            self.release().await;
            if Instant::now() > until {
                return Ok(None);
            }
            self.pace.sleep(RETRY_INTERVAL).await;
        }
    }

    async fn unlock(&mut self) -> Result<()> {
        self.release().await;
        Ok(())
    }
}

async fn connect(url: &str) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(NODE_TIMEOUT))
        .set_response_timeout(Some(NODE_TIMEOUT));
    redis::Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

async fn set(url: &str, value: &str, lease_ms: u64) -> redis::RedisResult<bool> {
    plain_lock::set_nx_px(&mut connect(url).await?, LOCK, value, lease_ms).await
}

async fn compare_and_delete(url: &str, value: &str) -> redis::RedisResult<bool> {
    plain_lock::compare_and_delete(&mut connect(url).await?, LOCK, value).await
}

/// This library's Redlock on the same nodes.
pub(super) struct OurRedlock {
    redlock: Redlock,
    acquire_timeout: Duration,
    guard: Option<Guard>,
}

impl OurRedlock {
    /// Waits until the nodes vote, which takes one lease on new nodes.
    pub(super) async fn new(
        urls: impl IntoIterator<Item = String>,
        pace: Pace,
        lease: Duration,
    ) -> Result<Self> {
        let lease = pace.real(lease);
        let redlock = open_admitted(
            RedlockBuilder::new(urls)
                .lease(lease)
                .node_timeout(NODE_TIMEOUT.min(lease / 3)),
        )
        .await?;
        Ok(Self {
            redlock,
            acquire_timeout: pace.real(ACQUIRE_TIMEOUT),
            guard: None,
        })
    }
}

#[async_trait]
impl Locking for OurRedlock {
    async fn lock(&mut self) -> Result<Option<Option<FencingToken>>> {
        match self
            .redlock
            .acquire_within(LOCK, self.acquire_timeout)
            .await
        {
            Ok(guard) => Ok(Some(Some(self.guard.insert(guard).token()))),
            Err(LockError::Invalid(error)) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    async fn unlock(&mut self) -> Result<()> {
        if let Some(guard) = self.guard.take() {
            // A lost lock needs no handling here: the row decides.
            let _ = guard.release().await;
        }
        Ok(())
    }
}
