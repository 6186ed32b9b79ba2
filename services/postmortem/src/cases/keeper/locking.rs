//! Where the lock and its token come from.

use std::time::Duration;

use anyhow::{Context, Result};
use lock::{FencingToken, Guard, Lock, RedisLock, RedisLockBuilder, Redlock, RedlockBuilder};
use redis::{AsyncCommands, Script, aio::MultiplexedConnection};
use serde::{Deserialize, Serialize};
use testbed::Redis;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::{cases::admitted::admitted, stage::connect};

const LOCK: &str = "item:1";
const COUNTER: &str = "item:1:token";

/// Whoever waits for longer than this and a few leases waits for what never comes.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const TRY_EVERY: Duration = Duration::from_millis(20);
/// How long a node is waited for that may be out of reach.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

// Scripts of a node: 0 if it does not give the lock.
const TAKE: &str =
    "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end return 0";
const TAKE_AND_COUNT: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[2]) end return 0";
const TAKE_AND_PROPOSE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
                                return tonumber(redis.call('GET', KEYS[2]) or '0') + 1 end return 0";
/// The second round, as it is got wrong: a node that has the number already says nothing.
const WRITE_DOWN: &str = "if tonumber(redis.call('GET', KEYS[1]) or '0') < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end \
                          return tonumber(ARGV[1])";

/// Which lock.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::cases) enum Locks {
    /// On one Redis server, with a counter in the same script. The first token is the one after this.
    OneServer { url: String, after: i64 },
    /// On most of several servers, each of which counts its own holders; the token is the highest count.
    HighestCount(Vec<String>),
    /// The same, but the counts are read when the token is needed.
    CountReadLater(Vec<String>),
    /// The same, but the servers count when the token is needed.
    CountedLater(Vec<String>),
    /// On most of several servers; the token is the highest number that they have seen and one more, and each writes it down, unless it has seen
    /// a higher one, when the token is needed.
    TwoRounds(Vec<String>),
    /// On most of several servers; the first of them counts, once the lock is held.
    CountOfTheFirst(Vec<String>),
    /// On most of several servers, with a ballot.
    Ballot(Vec<String>),
}

/// Waits until nobody has the lock on any of these servers: a lease is over.
pub(in crate::cases) async fn lock_is_free(
    servers: impl IntoIterator<Item = &Redis>,
) -> Result<()> {
    for server in servers {
        let mut connection = connect(&server.url()).await?;
        while connection.exists(LOCK).await? {
            sleep(LOOK_EVERY).await;
        }
    }
    Ok(())
}

/// Makes locks.
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

/// A token of a quorum that counts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Token {
    Given(i64),
    /// To be written down by the nodes when it is needed.
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
                    .retry(TRY_EVERY)
                    .build()?;
                if let Some(token) = FencingToken::new(*after) {
                    lock.observe(token);
                }
                Self::OneServer(lock, PATIENCE + 3 * lease)
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
            Locks::Ballot(urls) => Self::Ballot(ballot(urls, lease).await?, PATIENCE + 3 * lease),
        })
    }

    /// Waits for the lock. None if it could be had and its token could not.
    pub(super) async fn take(&self) -> Result<Option<Held>> {
        let (lock, patience): (&dyn Lock, _) = match self {
            Self::OneServer(lock, patience) => (lock, patience),
            Self::Ballot(lock, patience) => (lock, patience),
            Self::Quorum(quorum) => return quorum.take().await,
        };
        Ok(Some(Held::Guard(
            lock.acquire_within(LOCK, *patience).await?,
        )))
    }

    /// The token to show to the row.
    pub(super) async fn token(&self, held: &Held) -> Result<i64> {
        match (held, self) {
            (Held::Guard(guard), _) => Ok(guard.token().get()),
            (Held::Quorum { token, .. }, Self::Quorum(quorum)) => quorum.token(*token).await,
            (Held::Quorum { .. }, _) => unreachable!("it is not ours"),
        }
    }

    /// Whether it was certainly ours until now.
    pub(super) async fn free(&self, held: Held) -> Result<bool> {
        match (held, self) {
            (Held::Guard(guard), _) => Ok(guard.release().await.is_ok()),
            (Held::Quorum { owner, .. }, Self::Quorum(quorum)) => quorum.free(&owner).await,
            (Held::Quorum { .. }, _) => unreachable!("it is not ours"),
        }
    }
}

impl Held {
    /// If it came with the lock.
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

/// A ballot Redlock on these servers. If they are new to locks, this waits for a lease.
pub(in crate::cases) async fn ballot(urls: &[String], lease: Duration) -> Result<Redlock> {
    admitted(
        RedlockBuilder::new(urls)
            .lease(lease)
            .node_timeout(lease / 4)
            .retry(TRY_EVERY),
    )
    .await
}

/// A Redlock as people write it who want a token of it.
pub(super) struct Quorum {
    /// None for those that cannot be reached.
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
            sleep(TRY_EVERY).await;
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

    /// The token, now that it is needed.
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

    /// What the nodes have counted that have given the lock.
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
        match self.nodes.first().context("there are nodes")? {
            Some(first) => Ok(Some(first.clone().incr(COUNTER, 1).await?)),
            None => Ok(None),
        }
    }

    async fn free(&self, owner: &str) -> Result<bool> {
        let script = Script::new(
            "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0",
        );
        let mut freed = 0;
        for mut node in self.reached() {
            let deleted: usize = script.key(LOCK).arg(owner).invoke_async(&mut node).await?;
            freed += deleted;
        }
        Ok(freed > self.nodes.len() / 2)
    }
}

async fn reach(url: &str) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(url)?;
    let mut node = timeout(ANSWERS_WITHIN, client.get_multiplexed_async_connection()).await??;
    let _: String = timeout(ANSWERS_WITHIN, redis::cmd("PING").query_async(&mut node)).await??;
    Ok(node)
}
