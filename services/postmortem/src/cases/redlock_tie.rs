//! Three clients, each of which gets the vote of the node that is nearest to it, again and again.

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
use lock::{Answer, Guard, LockError, Redlock, RedlockBuilder};
use redis::{Script, aio::MultiplexedConnection};
use testbed::{Proxy, Redis, Traffic};
use tokio::{sync::Barrier, task::JoinSet};
use uuid::Uuid;

use super::admitted::admitted;
use crate::{
    case::{Case, Story, Way},
    evidence::{Evidence, Measure},
    stage::{self, Stage},
    timeline::{Doing, Event, Lane},
};

const LOCK: &str = "item:42";
/// As many clients as nodes, so that each client has a node of its own.
const NODES: usize = 3;
const QUORUM: usize = 2;
/// How often they try.
const ROUNDS: usize = 5;
/// So many rounds may have no winner. The first never has one, and one in fifty of those with jitter.
const ROUNDS_LOST: u64 = 3;
/// To a node that is far, one way, in the story.
const FAR: Duration = Duration::from_millis(1500);
/// At the least, in reality: what a busy machine does to those who start together must not decide.
const FAR_MIN: Duration = Duration::from_millis(40);
/// In ways to a far node: what a retry is spread over, and the lease. All tries together are shorter than the lease.
const JITTER: u32 = 10;
const LEASE: u32 = 50;

/// The case.
pub struct RedlockTie;

const SEQUENTIAL: &str = "one node after the other";
const PARALLEL: &str = "all nodes at once";
const UNRELEASED: &str = "jitter, nothing given back";
const JITTERED: &str = "at once, jitter, given back";
const LIBRARY: &str = "this library's Redlock";

#[async_trait]
impl Case for RedlockTie {
    fn name(&self) -> &'static str {
        "redlock-tie"
    }

    fn story(&self) -> Story {
        Story {
            title: "Everybody has one vote, and nobody the lock",
            told: "Three clients want the lock at the same moment, and each is near another node. Each gets the vote of its own node, finds the \
                   others taken, gives up, and comes again after the same pause as the others: nobody ever has two of three votes. The \
                   description of Redlock calls it a split brain condition, and asks for random delays, for asking all nodes at once, and for \
                   giving back at once what a failed try has got.",
            sources: &[(
                "Distributed locks with Redis: retry on failure",
                "https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/#retry-on-failure",
            )],
            schedule: "Three nodes and three clients; a client's own node answers at once, the others are a second and a half away. All three \
                       start a round together. They try five times, or until one of them has the lock.",
            instead: "Ask all nodes at once, give back every vote as soon as the quorum is out of reach, and spread retries over several times what \
                      it takes to get a quorum.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                SEQUENTIAL,
                "asks its own node first and then the others; gives back what it got; tries again after a fixed pause",
                "they stay in step, and in every round each has one vote",
            ),
            Way::does_not_help(
                PARALLEL,
                "the same, but asks all nodes at once",
                "the nearest client is still first at every node",
            ),
            Way::does_not_help(
                UNRELEASED,
                "all at once, with a random pause before a retry; votes of a failed try are left to run out",
                "the votes of the first round stand in the way of all others until the lease is over",
            ),
            Way::holds(
                JITTERED,
                "all at once, a random pause before a retry, and votes given back as soon as there can be no quorum",
                "whoever comes a little earlier in the next round finds two nodes free",
            ),
            Way::holds(
                LIBRARY,
                "this library's Redlock does that, and gives a token",
                "the same",
            ),
        ]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let far = stage.pace.real(FAR).max(FAR_MIN);
        let (nodes, paths) = world(stage, far).await?;
        let jitter = if matches!(way, SEQUENTIAL | PARALLEL) {
            Duration::ZERO
        } else {
            far * JITTER
        };
        let mut tries: Vec<Box<dyn Tries>> = Vec::new();
        for client in &paths {
            tries.push(match way {
                LIBRARY => Box::new(Library::new(client.urls(), far).await?),
                _ => Box::new(
                    Client::new(
                        client.urls(),
                        way != SEQUENTIAL,
                        way != UNRELEASED,
                        far * LEASE,
                    )
                    .await?,
                ),
            });
        }
        let lost = play(stage, tries, jitter).await?;
        drop(nodes);
        let timeline = &stage.timeline;
        let evidence = Evidence::new()
            .holders(timeline.holders_at_once())
            .stuck(timeline.longest(Doing::Waiting));
        Ok(evidence.judge(Measure::FailedRounds, lost, ROUNDS_LOST))
    }
}

/// How one client reaches the nodes, its own first.
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

/// The nodes, and each client's paths to them.
async fn world(stage: &Stage, far: Duration) -> Result<(Vec<Redis>, Vec<Paths>)> {
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(stage.redis().await?);
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

/// All try in rounds, until one has the lock. How many rounds nobody won.
async fn play(stage: &Stage, tries: Vec<Box<dyn Tries>>, jitter: Duration) -> Result<u64> {
    let rounds = Arc::new(Rounds {
        together: Barrier::new(tries.len()),
        winners: AtomicUsize::new(0),
        jitter,
    });
    let mut clients = JoinSet::new();
    for (number, client) in tries.into_iter().enumerate() {
        let lane = stage.timeline.lane(format!("client {}", number + 1));
        clients.spawn(Arc::clone(&rounds).play(client, lane));
    }
    let mut lost = 0;
    while let Some(client) = clients.join_next().await {
        lost = lost.max(client??);
    }
    Ok(lost)
}

/// What keeps the clients in step: a pause that is the same for all.
struct Rounds {
    together: Barrier,
    winners: AtomicUsize,
    /// Before a retry.
    jitter: Duration,
}

impl Rounds {
    async fn play(self: Arc<Self>, mut client: Box<dyn Tries>, lane: Lane) -> Result<u64> {
        let _waiting = lane.is(Doing::Waiting, "wants the lock");
        for round in 1..=ROUNDS {
            self.together.wait().await;
            if round > 1 {
                tokio::time::sleep(self.jitter.mul_f64(rand::random())).await;
            }
            let votes = client.tries().await;
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
            // Whoever has it has it until the others have lost this round. An error is told when they do not wait for us any more.
            self.together.wait().await;
            drop(inside);
            votes?;
            if self.winners.load(Ordering::SeqCst) > 0 {
                return Ok(round as u64 - 1);
            }
        }
        Ok(ROUNDS as u64)
    }
}

/// A client that wants the lock.
#[async_trait]
trait Tries: Send {
    /// One try. How many votes it got; if there is no quorum among them, it has done with them what it does.
    async fn tries(&mut self) -> Result<usize>;
}

/// Redlock as people write it.
struct Client {
    nodes: Vec<MultiplexedConnection>,
    at_once: bool,
    gives_back: bool,
    lease: Duration,
}

impl Client {
    async fn new(
        urls: Vec<String>,
        at_once: bool,
        gives_back: bool,
        lease: Duration,
    ) -> Result<Self> {
        let mut nodes = Vec::new();
        for url in urls {
            nodes.push(stage::connect(&url).await?);
        }
        Ok(Self {
            nodes,
            at_once,
            gives_back,
            lease,
        })
    }

    async fn ask_one_after_the_other(&self, value: &str) -> redis::RedisResult<usize> {
        let mut votes = 0;
        for node in &self.nodes {
            votes += usize::from(set(node, value, self.lease).await?);
        }
        Ok(votes)
    }

    /// Until there is a quorum, or can be none.
    async fn ask_at_once(&self, value: &str) -> redis::RedisResult<usize> {
        let mut asked: FuturesUnordered<_> = self
            .nodes
            .iter()
            .map(|node| set(node, value, self.lease))
            .collect();
        let (mut votes, mut refused) = (0, 0);
        while let Some(vote) = asked.next().await {
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
impl Tries for Client {
    async fn tries(&mut self) -> Result<usize> {
        let value = Uuid::new_v4().to_string();
        let votes = if self.at_once {
            self.ask_at_once(&value).await?
        } else {
            self.ask_one_after_the_other(&value).await?
        };
        if votes < QUORUM && self.gives_back {
            let released = join_all(
                self.nodes
                    .iter()
                    .map(|node| compare_and_delete(node, &value)),
            )
            .await;
            released.into_iter().collect::<redis::RedisResult<()>>()?;
        }
        Ok(votes)
    }
}

async fn set(
    node: &MultiplexedConnection,
    value: &str,
    lease: Duration,
) -> redis::RedisResult<bool> {
    let mut set = redis::cmd("SET");
    set.arg(LOCK)
        .arg(value)
        .arg("NX")
        .arg("PX")
        .arg(lease.as_millis() as u64);
    let set: Option<String> = set.query_async(&mut node.clone()).await?;
    Ok(set.is_some())
}

async fn compare_and_delete(node: &MultiplexedConnection, value: &str) -> redis::RedisResult<()> {
    let script = Script::new(
        "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0",
    );
    script
        .key(LOCK)
        .arg(value)
        .invoke_async(&mut node.clone())
        .await
}

/// Ours.
struct Library {
    redlock: Redlock,
    guard: Option<Guard>,
}

impl Library {
    /// Waits until the nodes vote: new ones do so after a lease.
    async fn new(urls: Vec<String>, far: Duration) -> Result<Self> {
        let redlock = admitted(
            RedlockBuilder::new(urls)
                .lease(far * LEASE)
                .node_timeout(far * LEASE / 4),
        )
        .await?;
        Ok(Self {
            redlock,
            guard: None,
        })
    }
}

#[async_trait]
impl Tries for Library {
    async fn tries(&mut self) -> Result<usize> {
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
