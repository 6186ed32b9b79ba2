//! Who takes part: every backend that was compiled in, on servers of its own, and rslock on the servers of the redlock.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use lock::{Guard, Lock, RedlockBuilder};
use testbed::Redis;

use crate::counting::Counter;

/// Nobody's lease ends during a run.
const LEASE: Duration = Duration::from_secs(10);

/// Everybody gets the lock within this.
const PATIENCE: Duration = Duration::from_secs(60);

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

/// Everybody that was compiled in. Their servers live as long as they do.
pub async fn all() -> Vec<Box<dyn Contestant>> {
    let mut all = on_five_redis().await;
    #[cfg(feature = "redis")]
    all.extend(on_one_redis().await);
    #[cfg(feature = "postgres")]
    all.extend(on_postgres().await);
    #[cfg(feature = "mysql")]
    all.extend(on_mariadb().await);
    #[cfg(feature = "sqlite")]
    all.extend(on_sqlite().await);
    #[cfg(feature = "etcd")]
    all.extend(on_etcd().await);
    #[cfg(feature = "zookeeper")]
    all.extend(on_zookeeper().await);
    all
}

async fn on_five_redis() -> Vec<Box<dyn Contestant>> {
    const ON: &str = "5 Redis, appendfsync always";
    let nodes = Arc::new(redis(5).await);
    let build = |fair| {
        move |urls: Vec<String>| async move { boxed(RedlockBuilder::new(urls).lease(LEASE).fair(fair).build().await.expect(SETTINGS)) }
    };
    vec![
        Box::new(Rslock(Arc::clone(&nodes))),
        ours("redlock", ON, nodes.clone(), build(false)),
        ours("redlock, fair", ON, nodes, build(true)),
    ]
}

#[cfg(feature = "redis")]
async fn on_one_redis() -> Vec<Box<dyn Contestant>> {
    const ON: &str = "1 Redis, appendfsync always";
    let nodes = Arc::new(redis(1).await);
    let build = |urls: Vec<String>| lock::RedisLockBuilder::new(&urls[0]).lease(LEASE).build().expect(SETTINGS);
    vec![
        ours("redis", ON, nodes.clone(), move |urls| async move { boxed(build(urls)) }),
        ours("redis, reentrant", ON, nodes, move |urls| async move { boxed(build(urls).reentrant()) }),
    ]
}

/// The three kinds of locks in a database that is a server.
#[cfg(any(feature = "postgres", feature = "mysql"))]
macro_rules! in_a_database {
    ($database:ty, $on:expr, $labels:expr, $nodes:expr) => {{
        let builder = |urls: Vec<String>| lock::SqlLockBuilder::<$database>::connect(&urls[0]).lease(LEASE);
        let row = move |urls| async move {
            let lock = builder(urls).build().expect(SETTINGS);
            lock.create_table().await.expect("a table");
            boxed(lock)
        };
        let advisory = move |urls| async move {
            let lock = builder(urls).table("advisory_locks").build_advisory().expect(SETTINGS);
            lock.create_table().await.expect("a table");
            boxed(lock)
        };
        let for_update = move |urls| async move {
            let lock = builder(urls).table("row_locks").build_for_update().expect(SETTINGS);
            lock.create_table().await.expect("a table");
            boxed(lock)
        };
        let ([first, second, third], nodes) = ($labels, $nodes);
        vec![ours(first, $on, nodes.clone(), row), ours(second, $on, nodes.clone(), advisory), ours(third, $on, nodes, for_update)]
    }};
}

#[cfg(feature = "postgres")]
async fn on_postgres() -> Vec<Box<dyn Contestant>> {
    const ON: &str = "PostgreSQL, fsync on";
    let server = testbed::Postgres::start().await.expect("a PostgreSQL server");
    let port = server.port();
    let nodes = Arc::new(Nodes::new(vec![server], vec![port], |port| format!("postgres://postgres@127.0.0.1:{port}/postgres")).await);
    in_a_database!(sqlx::Postgres, ON, ["postgres", "postgres, advisory", "postgres, for update"], nodes)
}

#[cfg(feature = "mysql")]
async fn on_mariadb() -> Vec<Box<dyn Contestant>> {
    const ON: &str = "MariaDB, flush at commit";
    let server = testbed::MariaDb::start().await.expect("a MariaDB server");
    server.create_database("locks").await.expect("a database");
    let port = server.port();
    let nodes = Arc::new(Nodes::new(vec![server], vec![port], |port| format!("mysql://root@127.0.0.1:{port}/locks")).await);
    in_a_database!(sqlx::MySql, ON, ["mysql", "mysql, advisory", "mysql, for update"], nodes)
}

#[cfg(feature = "sqlite")]
async fn on_sqlite() -> Vec<Box<dyn Contestant>> {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}/locks.db?mode=rwc", folder.path().display());
    let open = |url: &str| lock::SqlLockBuilder::<sqlx::Sqlite>::connect(url).lease(LEASE).build().expect(SETTINGS);
    // Once: clients that wait for the file could not make it.
    open(&url).create_table().await.expect("a table");
    let nodes = Arc::new(File { url, _folder: folder });
    let build = move |urls: Vec<String>| async move { boxed(open(&urls[0])) };
    vec![ours("sqlite", "a file", nodes, build)]
}

#[cfg(feature = "etcd")]
async fn on_etcd() -> Vec<Box<dyn Contestant>> {
    let server = testbed::Etcd::start().await.expect("an etcd server");
    let port = server.port();
    let nodes = Arc::new(Nodes::new(vec![server], vec![port], |port| format!("http://127.0.0.1:{port}")).await);
    let build = async |urls: Vec<String>| boxed(lock::EtcdBuilder::new(urls).lease(LEASE).build().await.expect(SETTINGS));
    vec![ours("etcd", "1 etcd", nodes, build)]
}

#[cfg(feature = "zookeeper")]
async fn on_zookeeper() -> Vec<Box<dyn Contestant>> {
    let server = testbed::ZooKeeper::start().await.expect("a ZooKeeper server");
    let port = server.port();
    let nodes = Arc::new(Nodes::new(vec![server], vec![port], |port| format!("127.0.0.1:{port}")).await);
    let build = async |urls: Vec<String>| boxed(lock::ZooKeeperBuilder::new(&urls[0]).lease(LEASE).build().await.expect(SETTINGS));
    vec![ours("zookeeper", "1 ZooKeeper", nodes, build)]
}

const SETTINGS: &str = "settings that make sense";

fn boxed(lock: impl Lock + 'static) -> Box<dyn Lock> {
    Box::new(lock)
}

fn ours<F>(
    label: &'static str,
    on: &'static str,
    nodes: Arc<dyn Servers>,
    build: impl Fn(Vec<String>) -> F + Send + Sync + 'static,
) -> Box<dyn Contestant>
where
    F: Future<Output = Box<dyn Lock>> + Send + 'static,
{
    Box::new(Backend { label, on, nodes, build: Box::new(move |urls| Box::pin(build(urls))) })
}

type Building = Pin<Box<dyn Future<Output = Box<dyn Lock>> + Send>>;

/// Servers, and a counter before each.
struct Nodes<S = Redis> {
    direct: Vec<String>,
    counted: Vec<String>,
    counters: Vec<Counter>,
    _servers: Vec<S>,
}

async fn redis(count: usize) -> Nodes {
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(Redis::start().await.expect("a Redis server"));
    }
    let ports = servers.iter().map(Redis::port).collect();
    Nodes::new(servers, ports, |port| format!("redis://127.0.0.1:{port}")).await
}

/// A database in a file: nothing is sent.
#[cfg(feature = "sqlite")]
struct File {
    url: String,
    _folder: tempfile::TempDir,
}

#[cfg(feature = "sqlite")]
impl Servers for File {
    fn urls(&self, _via: Via) -> Vec<String> {
        vec![self.url.clone()]
    }

    fn sent(&self) -> Option<u64> {
        None
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
        // A database in a file is busy now and then, and says so.
        Box::new(self.0.acquire_within(name, PATIENCE).await.expect("servers that work"))
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
