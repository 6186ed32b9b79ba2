//! Three clients each get the vote of their nearest node, round after round.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use async_trait::async_trait;
use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use lock::{Answer, Guard, Lock, LockError, Redlock, RedlockBuilder};
use redis::aio::MultiplexedConnection;
use testbed::{Proxy, Redis, Traffic};
use tokio::{sync::Barrier, task::JoinSet};
use uuid::Uuid;

use super::{admission::open_admitted, plain_lock};
use crate::{
    case::Case,
    measurements::{Measure, Measurements},
    test_env::{self, TestEnv},
    timeline::{Doing, Event, Lane},
};

const LOCK: &str = "item:42";
/// Number of nodes, and of clients: each client has a nearest node.
const NODES: usize = 3;
const QUORUM: usize = 2;
/// Number of attempts.
const ROUNDS: usize = 5;
/// Number of rounds that may have no winner. The first never has one, and one in fifty of the later
/// ones with jitter has none.
const LOST_ROUNDS_MAX: u64 = 3;
/// One-way latency of a far node, in scenario time.
const FAR_LATENCY: Duration = Duration::from_millis(1500);
/// Smallest real latency. Scheduling delays of a busy machine must stay below it.
const FAR_LATENCY_MIN: Duration = Duration::from_millis(40);
/// Range of the random delay, and then the lease, in multiples of the latency. All attempts
/// barrier are shorter than the lease.
const JITTER_LATENCIES: u32 = 10;
const LEASE_LATENCIES: u32 = 50;

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("redlock-tie", include_str!("redlock_tie.toml"))
        .faulty("sequential requests", |env| {
            Box::pin(hand_written(env, Tactics::default()))
        })
        .does_not_help("parallel requests", |env| {
            Box::pin(hand_written(
                env,
                Tactics {
                    parallel: true,
                    ..Tactics::default()
                },
            ))
        })
        .does_not_help("jitter, votes not released", |env| {
            Box::pin(hand_written(
                env,
                Tactics {
                    parallel: true,
                    jitter: true,
                    releases: false,
                },
            ))
        })
        .holds("parallel, jitter, votes released", |env| {
            Box::pin(hand_written(
                env,
                Tactics {
                    parallel: true,
                    jitter: true,
                    releases: true,
                },
            ))
        })
        .holds("this library's Redlock", |env| Box::pin(library(env)))
}

/// How a hand-written Redlock requests votes.
#[derive(Debug, Clone, Copy)]
struct Tactics {
    /// It sends the requests to all nodes in parallel.
    parallel: bool,
    /// It waits for a random delay before a retry.
    jitter: bool,
    /// It releases the votes of a failed attempt.
    releases: bool,
}

impl Default for Tactics {
    fn default() -> Self {
        Self {
            parallel: false,
            jitter: false,
            releases: true,
        }
    }
}

fn far(env: &TestEnv) -> Duration {
    env.pace.real(FAR_LATENCY).max(FAR_LATENCY_MIN)
}

async fn hand_written(env: &TestEnv, tactics: Tactics) -> Result<Measurements> {
    let far = far(env);
    let (_nodes, paths) = start_nodes(env, far).await?;
    let mut clients: Vec<Box<dyn Contender>> = Vec::new();
    for client in &paths {
        let client = Client::new(client.urls(), tactics, far * LEASE_LATENCIES).await?;
        clients.push(Box::new(client));
    }
    let jitter = if tactics.jitter {
        far * JITTER_LATENCIES
    } else {
        Duration::ZERO
    };
    count(env, run_rounds(env, clients, jitter).await?)
}

async fn library(env: &TestEnv) -> Result<Measurements> {
    let far = far(env);
    let (_nodes, paths) = start_nodes(env, far).await?;
    let mut clients: Vec<Box<dyn Contender>> = Vec::new();
    for client in &paths {
        clients.push(Box::new(Library::new(client.urls(), far).await?));
    }
    count(env, run_rounds(env, clients, far * JITTER_LATENCIES).await?)
}

fn count(env: &TestEnv, lost_rounds: u64) -> Result<Measurements> {
    let measurements = Measurements::of(&env.timeline);
    Ok(measurements.judge(Measure::FailedRounds, lost_rounds, LOST_ROUNDS_MAX))
}

/// Addresses of the nodes for one client, its nearest node first.
struct Paths {
    own: String,
    others: Vec<Proxy>,
}

impl Paths {
    fn urls(&self) -> Vec<String> {
        let others = self
            .others
            .iter()
            .map(|proxy| format!("redis://127.0.0.1:{}", proxy.port()));
        std::iter::once(self.own.clone()).chain(others).collect()
    }
}

/// Starts the nodes, and each client's proxies.
async fn start_nodes(env: &TestEnv, far: Duration) -> Result<(Vec<Redis>, Vec<Paths>)> {
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(env.redis().await?);
    }
    let mut paths = Vec::new();
    for client in 0..NODES {
        let mut others = Vec::new();
        for other in 1..NODES {
            let proxy = Proxy::start(nodes[(client + other) % NODES].port()).await?;
            proxy.set(Traffic::Delay(far));
            others.push(proxy);
        }
        paths.push(Paths {
            own: nodes[client].url(),
            others,
        });
    }
    Ok((nodes, paths))
}

/// Lets all clients try in rounds until one has the lock. Returns the number of rounds without a
/// winner.
async fn run_rounds(
    env: &TestEnv,
    contenders: Vec<Box<dyn Contender>>,
    jitter: Duration,
) -> Result<u64> {
    let rounds = Arc::new(Rounds {
        barrier: Barrier::new(contenders.len()),
        winners: AtomicUsize::new(0),
        jitter,
    });
    let mut clients = JoinSet::new();
    for (number, client) in contenders.into_iter().enumerate() {
        let lane = env.timeline.lane(format!("client {}", number + 1));
        clients.spawn(Arc::clone(&rounds).run(client, lane));
    }
    let mut lost = 0;
    while let Some(client) = clients.join_next().await {
        lost = lost.max(client??);
    }
    Ok(lost)
}

/// Keeps the clients in step: the pause between rounds is the same for all.
struct Rounds {
    barrier: Barrier,
    winners: AtomicUsize,
    /// Upper bound of the random delay before a retry.
    jitter: Duration,
}

impl Rounds {
    async fn run(self: Arc<Self>, mut client: Box<dyn Contender>, lane: Lane) -> Result<u64> {
        let _waiting = lane.is(Doing::Waiting, "waits for the lock");
        for round in 1..=ROUNDS {
            self.barrier.wait().await;
            if round > 1 {
                tokio::time::sleep(self.jitter.mul_f64(rand::random())).await;
            }
            let votes = client.attempt().await;
            let inside = match votes {
                Ok(votes) if votes >= QUORUM => {
                    self.winners.fetch_add(1, Ordering::SeqCst);
                    Some(lane.holds("has the lock", Duration::from_secs(60)))
                }
                Ok(votes) => {
                    lane.notes(Event::Refused, format!("{votes} of {NODES} votes"));
                    None
                }
                Err(_) => None,
            };
            // The winner keeps the lock until the others have lost this round. An error is returned
            // only after they no longer wait for this client.
            self.barrier.wait().await;
            drop(inside);
            votes?;
            if self.winners.load(Ordering::SeqCst) > 0 {
                return Ok(round as u64 - 1);
            }
        }
        Ok(ROUNDS as u64)
    }
}

/// A client that requests the lock.
#[async_trait]
trait Contender: Send {
    /// Makes one attempt, and returns the number of votes. Without a quorum the votes are released
    /// or kept, as the client does it.
    async fn attempt(&mut self) -> Result<usize>;
}

/// A hand-written Redlock.
struct Client {
    nodes: Vec<MultiplexedConnection>,
    tactics: Tactics,
    lease: Duration,
}

impl Client {
    async fn new(urls: Vec<String>, tactics: Tactics, lease: Duration) -> Result<Self> {
        let mut nodes = Vec::new();
        for url in urls {
            nodes.push(test_env::connect(&url).await?);
        }
        Ok(Self {
            nodes,
            tactics,
            lease,
        })
    }

    async fn request_sequentially(&self, value: &str) -> redis::RedisResult<usize> {
        let mut votes = 0;
        for node in &self.nodes {
            votes += usize::from(set(node, value, self.lease).await?);
        }
        Ok(votes)
    }

    /// Requests votes until there is a quorum, or there can be none.
    async fn request_in_parallel(&self, value: &str) -> redis::RedisResult<usize> {
        let mut requests: FuturesUnordered<_> = self
            .nodes
            .iter()
            .map(|node| set(node, value, self.lease))
            .collect();
        let (mut votes, mut refused) = (0, 0);
        while let Some(vote) = requests.next().await {
            match vote? {
                true => votes += 1,
                false => refused += 1,
            }
            if votes >= QUORUM || refused > NODES - QUORUM {
                break;
            }
        }
        Ok(votes)
    }
}

#[async_trait]
impl Contender for Client {
    async fn attempt(&mut self) -> Result<usize> {
        let value = Uuid::new_v4().to_string();
        let votes = if self.tactics.parallel {
            self.request_in_parallel(&value).await?
        } else {
            self.request_sequentially(&value).await?
        };
        if votes < QUORUM && self.tactics.releases {
            let released = join_all(
                self.nodes
                    .iter()
                    .map(|node| compare_and_delete(node, &value)),
            )
            .await;
            released
                .into_iter()
                .collect::<redis::RedisResult<Vec<_>>>()?;
        }
        Ok(votes)
    }
}

async fn set(
    node: &MultiplexedConnection,
    value: &str,
    lease: Duration,
) -> redis::RedisResult<bool> {
    plain_lock::set_nx_px(&mut node.clone(), LOCK, value, lease.as_millis() as u64).await
}

async fn compare_and_delete(node: &MultiplexedConnection, value: &str) -> redis::RedisResult<bool> {
    plain_lock::compare_and_delete(&mut node.clone(), LOCK, value).await
}

/// This library's Redlock.
struct Library {
    redlock: Redlock,
    guard: Option<Guard>,
}

impl Library {
    /// Waits until the nodes vote, which takes one lease on new nodes.
    async fn new(urls: Vec<String>, far: Duration) -> Result<Self> {
        let redlock = open_admitted(
            RedlockBuilder::new(urls)
                .lease(far * LEASE_LATENCIES)
                .node_timeout(far * LEASE_LATENCIES / 4),
        )
        .await?;
        Ok(Self {
            redlock,
            guard: None,
        })
    }
}

#[async_trait]
impl Contender for Library {
    async fn attempt(&mut self) -> Result<usize> {
        match self.redlock.try_acquire(LOCK).await {
            Ok(guard) => {
                self.guard = Some(guard);
                Ok(QUORUM)
            }
            Err(LockError::Invalid(error)) => Err(error.into()),
            Err(error) => Ok(error
                .votes()
                .iter()
                .filter(|vote| matches!(vote.answer, Answer::Accepted))
                .count()),
        }
    }
}
