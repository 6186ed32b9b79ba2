//! Who takes part: every backend that was compiled in, on servers of its own, and rslock on the servers of the redlock.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use lock::{Guard, Lock, RedlockBuilder};
use testbed::Redis;

use crate::counting::Counter;

/// Nobody's lease ends during a run.
const LEASE: Duration = Duration::from_secs(10);

/// How the servers are reached.
#[derive(Clone, Copy, PartialEq)]
pub enum Via {
    Directly,
    /// Through counters of messages.
    Counters,
}

#[async_trait]
pub trait Contestant: Send + Sync {
    fn label(&self) -> &'static str;
    /// Its servers, and how they write to the disk.
    fn on(&self) -> &'static str;
    async fn client(&self, via: Via) -> Box<dyn Client>;
    /// Messages until now; `None` without a network.
    fn sent(&self) -> Option<u64>;
}

#[async_trait]
pub trait Client: Send + Sync {
    async fn take(&self, name: &str) -> Box<dyn Held>;
}

#[async_trait]
pub trait Held: Send {
    async fn give_back(self: Box<Self>);
}

/// Its servers live as long as this.
pub async fn all() -> Vec<Box<dyn Contestant>> {
    let nodes = Arc::new(Nodes::start(5).await);
    let mut all: Vec<Box<dyn Contestant>> = vec![Box::new(Rslock(Arc::clone(&nodes)))];
    for (label, fair) in [("redlock", false), ("redlock, fair", true)] {
        let nodes = Arc::clone(&nodes);
        let build = move |urls: Vec<String>| -> Building {
            Box::pin(
                async move { Box::new(RedlockBuilder::new(urls).lease(LEASE).fair(fair).build().await.expect("nodes")) as Box<dyn Lock> },
            )
        };
        all.push(Box::new(Backend { label, on: "5 Redis, appendfsync always", nodes, build: Box::new(build) }));
    }
    #[cfg(feature = "redis")]
    {
        let nodes = Arc::new(Nodes::start(1).await);
        for (label, reentrant) in [("redis", false), ("redis, reentrant", true)] {
            let build = move |urls: Vec<String>| -> Building {
                Box::pin(async move {
                    let lock = lock::RedisLockBuilder::new(&urls[0]).lease(LEASE).build().expect("a server");
                    Box::new(if reentrant { lock.reentrant() } else { lock }) as Box<dyn Lock>
                })
            };
            all.push(Box::new(Backend { label, on: "1 Redis, appendfsync always", nodes: nodes.clone(), build: Box::new(build) }));
        }
    }
    all
}

type Building = Pin<Box<dyn Future<Output = Box<dyn Lock>> + Send>>;

/// Servers, and a counter before each.
struct Nodes<S = Redis> {
    direct: Vec<String>,
    counted: Vec<String>,
    counters: Vec<Counter>,
    _servers: Vec<S>,
}

impl Nodes<Redis> {
    async fn start(count: usize) -> Self {
        let mut servers = Vec::new();
        for _ in 0..count {
            servers.push(Redis::start().await.expect("a Redis server"));
        }
        let ports = servers.iter().map(|server| server.port()).collect();
        Self::new(servers, ports, |port| format!("redis://127.0.0.1:{port}")).await
    }
}

impl<S> Nodes<S> {
    async fn new(servers: Vec<S>, ports: Vec<u16>, url: impl Fn(u16) -> String) -> Self {
        let mut counters = Vec::new();
        for port in &ports {
            counters.push(Counter::start(*port).await);
        }
        let direct = ports.iter().map(|port| url(*port)).collect();
        let counted = counters.iter().map(|counter| url(counter.port)).collect();
        Self { direct, counted, counters, _servers: servers }
    }
}

/// What every kind of servers is to a contestant.
trait Servers: Send + Sync {
    fn urls(&self, via: Via) -> Vec<String>;
    fn sent(&self) -> Option<u64>;
}

impl<S: Send + Sync> Servers for Nodes<S> {
    fn urls(&self, via: Via) -> Vec<String> {
        if via == Via::Directly { self.direct.clone() } else { self.counted.clone() }
    }

    fn sent(&self) -> Option<u64> {
        Some(self.counters.iter().map(Counter::sent).sum())
    }
}

/// A backend of ours.
struct Backend {
    label: &'static str,
    on: &'static str,
    nodes: Arc<dyn Servers>,
    build: Box<dyn Fn(Vec<String>) -> Building + Send + Sync>,
}

#[async_trait]
impl Contestant for Backend {
    fn label(&self) -> &'static str {
        self.label
    }

    fn on(&self) -> &'static str {
        self.on
    }

    async fn client(&self, via: Via) -> Box<dyn Client> {
        Box::new(Ours((self.build)(self.nodes.urls(via)).await))
    }

    fn sent(&self) -> Option<u64> {
        self.nodes.sent()
    }
}

struct Ours(Box<dyn Lock>);

#[async_trait]
impl Client for Ours {
    async fn take(&self, name: &str) -> Box<dyn Held> {
        Box::new(self.0.acquire(name).await.expect("servers that work"))
    }
}

#[async_trait]
impl Held for Guard {
    async fn give_back(self: Box<Self>) {
        self.release().await.expect("it was ours");
    }
}

/// The crate `rslock`, as its documentation says.
struct Rslock(Arc<Nodes>);

struct Manager(rslock::LockManager);

struct Theirs(rslock::LockManager, rslock::Lock);

#[async_trait]
impl Contestant for Rslock {
    fn label(&self) -> &'static str {
        "rslock"
    }

    fn on(&self) -> &'static str {
        "the same 5 Redis"
    }

    async fn client(&self, via: Via) -> Box<dyn Client> {
        Box::new(Manager(rslock::LockManager::new(self.0.urls(via))))
    }

    fn sent(&self) -> Option<u64> {
        self.0.sent()
    }
}

#[async_trait]
impl Client for Manager {
    async fn take(&self, name: &str) -> Box<dyn Held> {
        let lock = self.0.acquire_no_guard(name.as_bytes(), LEASE).await.expect("servers that work");
        Box::new(Theirs(self.0.clone(), lock))
    }
}

#[async_trait]
impl Held for Theirs {
    async fn give_back(self: Box<Self>) {
        self.0.unlock(&self.1).await;
    }
}
