//! The lock and the source of its token.

use std::time::Duration;

use anyhow::{Context, Result};
use lock::{FencingToken, Guard, Lock, RedisLock, RedisLockBuilder, Redlock, RedlockBuilder};
use redis::{AsyncCommands, Script, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};
use testbed::Redis;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::{
    cases::{admission::open_admitted, plain_lock},
    test_env::connect,
};

const LOCK: &str = "item:1";
const COUNTER: &str = "item:1:token";

/// Time limit of an acquisition, in addition to a few leases.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Time limit of a connection to a node that may be unreachable.
const NODE_TIMEOUT: Duration = Duration::from_secs(10);

// Scripts of a node. They return 0 if the node does not grant the lock.
const TAKE: &str =
    "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end return 0";
const TAKE_AND_COUNT: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[2]) end return 0";
const TAKE_AND_PROPOSE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
                                return tonumber(redis.call('GET', KEYS[2]) or '0') + 1 end return 0";
/// The second round, with its usual fault: a node that has the number already does not object.
const WRITE_DOWN: &str = "if tonumber(redis.call('GET', KEYS[1]) or '0') < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end \
                          return tonumber(ARGV[1])";

/// Kind of lock.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::cases) enum Locks {
    /// One Redis server, with a counter in the same script. The first token is the one after
    /// `after`.
    OneServer { url: String, after: i64 },
    /// A majority of servers, each of which counts its own holders; the token is the highest count.
    HighestCount(Vec<String>),
    /// As `HighestCount`, but the counts are read when the token is needed.
    CountReadLater(Vec<String>),
    /// As `HighestCount`, but the servers count when the token is needed.
    CountedLater(Vec<String>),
    /// A majority of servers. The token is their highest number plus one. When it is needed, each
    /// server stores it unless it has a higher one.
    TwoRounds(Vec<String>),
    /// A majority of servers, of which the first counts once the lock is held.
    CountOfTheFirst(Vec<String>),
    /// A majority of servers, with a ballot.
    Ballot(Vec<String>),
}

/// Waits until the lock is free on all of these servers, because a lease has expired.
pub(in crate::cases) async fn lock_is_free(
    servers: impl IntoIterator<Item = &Redis>,
) -> Result<()> {
    for server in servers {
        let mut connection = connect(&server.url()).await?;
        while connection.exists(LOCK).await? {
            sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// Acquires and releases locks.
pub(super) enum Locksmith {
    OneServer(RedisLock, Duration),
    Quorum(Quorum),
    Ballot(Redlock, Duration),
}

/// A lock that is held.
pub(super) enum Held {
    Guard(Guard),
    Quorum { owner: String, token: Token },
}

/// Token of a majority with counters.
#[derive(Debug, Clone, Copy)]
pub(super) enum Token {
    Given(i64),
    /// The nodes must store it when it is needed.
    Proposed(i64),
    NotYet,
}

impl Locksmith {
    pub(super) async fn open(locks: &Locks, lease: Duration) -> Result<Self> {
        Ok(match locks {
            Locks::OneServer { url, after } => {
                let lock = RedisLockBuilder::new(url)
                    .lease(lease)
                    .server_timeout(lease / 2)
                    .retry(RETRY_INTERVAL)
                    .build()?;
                if let Some(token) = FencingToken::new(*after) {
                    lock.observe(LOCK, token)?;
                }
                Self::OneServer(lock, ACQUIRE_TIMEOUT + 3 * lease)
            }
            Locks::HighestCount(urls) => {
                Self::Quorum(Quorum::open(urls, lease, Counting::Highest).await)
            }
            Locks::CountReadLater(urls) => {
                Self::Quorum(Quorum::open(urls, lease, Counting::ReadLater).await)
            }
            Locks::CountedLater(urls) => {
                Self::Quorum(Quorum::open(urls, lease, Counting::Later).await)
            }
            Locks::TwoRounds(urls) => {
                Self::Quorum(Quorum::open(urls, lease, Counting::TwoRounds).await)
            }
            Locks::CountOfTheFirst(urls) => {
                Self::Quorum(Quorum::open(urls, lease, Counting::First).await)
            }
            Locks::Ballot(urls) => {
                Self::Ballot(ballot(urls, lease).await?, ACQUIRE_TIMEOUT + 3 * lease)
            }
        })
    }

    /// Waits for the lock. Returns none if the lock was granted and its token was not.
    pub(super) async fn take(&self) -> Result<Option<Held>> {
        let (lock, timeout): (&dyn Lock, _) = match self {
            Self::OneServer(lock, timeout) => (lock, timeout),
            Self::Ballot(lock, timeout) => (lock, timeout),
            Self::Quorum(quorum) => return quorum.take().await,
        };
        Ok(Some(Held::Guard(
            lock.acquire_within(LOCK, *timeout).await?,
        )))
    }

    /// Returns the token to present to the row.
    pub(super) async fn token(&self, held: &Held) -> Result<i64> {
        match (held, self) {
            (Held::Guard(guard), _) => Ok(guard.token().get()),
            (Held::Quorum { token, .. }, Self::Quorum(quorum)) => quorum.token(*token).await,
            (Held::Quorum { .. }, _) => unreachable!("the lock was taken by a quorum"),
        }
    }

    /// Releases the lock, and returns whether it was certainly held until now.
    pub(super) async fn free(&self, held: Held) -> Result<bool> {
        match (held, self) {
            (Held::Guard(guard), _) => Ok(guard.release().await.is_ok()),
            (Held::Quorum { owner, .. }, Self::Quorum(quorum)) => quorum.free(&owner).await,
            (Held::Quorum { .. }, _) => unreachable!("the lock was taken by a quorum"),
        }
    }
}

impl Held {
    /// Returns the token, if it came with the lock.
    pub(super) fn token(&self) -> Option<i64> {
        match self {
            Self::Guard(guard) => Some(guard.token().get()),
            Self::Quorum {
                token: Token::Given(token),
                ..
            } => Some(*token),
            Self::Quorum { .. } => None,
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Guard(guard) if guard.is_lost())
    }
}

/// Opens a ballot Redlock on these servers. On servers without a history of locks this takes one
/// lease.
pub(in crate::cases) async fn ballot(urls: &[String], lease: Duration) -> Result<Redlock> {
    open_admitted(
        RedlockBuilder::new(urls)
            .lease(lease)
            .node_timeout(lease / 4)
            .retry(RETRY_INTERVAL),
    )
    .await
}

/// A hand-written Redlock with a token.
pub(super) struct Quorum {
    /// Connections to the nodes; none for a node that cannot be reached.
    nodes: Vec<Option<MultiplexedConnection>>,
    lease: Duration,
    counting: Counting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counting {
    Highest,
    ReadLater,
    Later,
    TwoRounds,
    First,
}

impl Quorum {
    async fn open(urls: &[String], lease: Duration, counting: Counting) -> Self {
        let mut nodes = Vec::new();
        for url in urls {
            nodes.push(reach(url).await.ok());
        }
        Self {
            nodes,
            lease,
            counting,
        }
    }

    fn reached(&self) -> impl Iterator<Item = MultiplexedConnection> + '_ {
        self.nodes.iter().flatten().cloned()
    }

    async fn take(&self) -> Result<Option<Held>> {
        let owner = Uuid::new_v4().to_string();
        let counts = loop {
            let counts = self.try_take(&owner).await?;
            if counts.len() > self.nodes.len() / 2 {
                break counts;
            }
            self.free(&owner).await?;
            sleep(RETRY_INTERVAL).await;
        };
        let highest = counts.into_iter().max().unwrap_or(0);
        let token = match self.counting {
            Counting::Highest => Some(Token::Given(highest)),
            Counting::ReadLater | Counting::Later => Some(Token::NotYet),
            Counting::TwoRounds => Some(Token::Proposed(highest)),
            Counting::First => self.count_at_the_first().await?.map(Token::Given),
        };
        if token.is_none() {
            self.free(&owner).await?;
        }
        Ok(token.map(|token| Held::Quorum { owner, token }))
    }

    /// Returns the token when it is needed.
    async fn token(&self, token: Token) -> Result<i64> {
        let mut highest = 0;
        for mut node in self.reached() {
            let number: i64 = match token {
                Token::Given(token) => return Ok(token),
                Token::Proposed(token) => {
                    Script::new(WRITE_DOWN)
                        .key(COUNTER)
                        .arg(token)
                        .invoke_async(&mut node)
                        .await?
                }
                Token::NotYet if self.counting == Counting::Later => node.incr(COUNTER, 1).await?,
                Token::NotYet => node.get(COUNTER).await.map(Option::unwrap_or_default)?,
            };
            highest = highest.max(number);
        }
        Ok(highest)
    }

    /// Returns the counts of the nodes that have granted the lock.
    async fn try_take(&self, owner: &str) -> Result<Vec<i64>> {
        let script = Script::new(match self.counting {
            Counting::Highest | Counting::ReadLater => TAKE_AND_COUNT,
            Counting::TwoRounds => TAKE_AND_PROPOSE,
            Counting::Later | Counting::First => TAKE,
        });
        let mut counts = Vec::new();
        for mut node in self.reached() {
            let lease_ms = u64::try_from(self.lease.as_millis())?;
            let count: i64 = script
                .key(LOCK)
                .key(COUNTER)
                .arg(owner)
                .arg(lease_ms)
                .invoke_async(&mut node)
                .await?;
            if count > 0 {
                counts.push(count);
            }
        }
        Ok(counts)
    }

    async fn count_at_the_first(&self) -> Result<Option<i64>> {
        match self.nodes.first().context("the quorum has no nodes")? {
            Some(first) => Ok(Some(first.clone().incr(COUNTER, 1).await?)),
            None => Ok(None),
        }
    }

    async fn free(&self, owner: &str) -> Result<bool> {
        let mut freed = 0;
        for mut node in self.reached() {
            let deleted = plain_lock::compare_and_delete(&mut node, LOCK, owner).await?;
            freed += usize::from(deleted);
        }
        Ok(freed > self.nodes.len() / 2)
    }
}

async fn reach(url: &str) -> Result<MultiplexedConnection> {
    let mut node = timeout(NODE_TIMEOUT, connect(url)).await??;
    let _: String = timeout(NODE_TIMEOUT, redis::cmd("PING").query_async(&mut node)).await??;
    Ok(node)
}
