//! Five independent Redis servers, and what a test sees of them past the library.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use lock::{Answer, FencingToken, Guard, LockError, Redlock, RedlockBuilder, Standing};
use redis::aio::MultiplexedConnection;
use testbed::Redis;
use tokio::{sync::OnceCell, time::sleep};

/// For tests that break nothing. All of them vote. They live as long as the process.
static SHARED: OnceCell<Vec<Redis>> = OnceCell::const_new();
static NAMES: AtomicU32 = AtomicU32::new(0);

/// Whatever is expected to happen at all happens within this.
const PATIENCE: Duration = Duration::from_secs(10);

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn token(number: i64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

/// A name that no other test uses.
pub fn name(what: &str) -> String {
    format!("{what} {}", NAMES.fetch_add(1, Ordering::Relaxed))
}

pub async fn start(count: usize) -> Vec<Redis> {
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(Redis::start().await.unwrap());
    }
    servers
}

pub async fn five() -> &'static [Redis] {
    let admitted = async || {
        let servers = start(5).await;
        let redlock = redlock(&servers).await;
        becomes("all of them vote", async || {
            redlock
                .status()
                .await
                .iter()
                .all(|node| matches!(node.standing, Standing::Voting))
        })
        .await;
        servers
    };
    SHARED.get_or_init(admitted).await
}

/// A lease that a loaded machine does not outlast, and that a test can wait for.
pub fn builder(servers: &[Redis]) -> RedlockBuilder {
    RedlockBuilder::new(servers.iter().map(Redis::url))
        .lease(ms(1500))
        .node_timeout(ms(400))
}

pub async fn redlock(servers: &[Redis]) -> Redlock {
    builder(servers).build().await.unwrap()
}

/// A connection of its own to one server.
pub async fn raw(server: &Redis) -> MultiplexedConnection {
    redis::Client::open(server.url())
        .unwrap()
        .get_multiplexed_async_connection()
        .await
        .unwrap()
}

pub async fn get(server: &Redis, key: &str) -> Option<String> {
    redis::cmd("GET")
        .arg(key)
        .query_async(&mut raw(server).await)
        .await
        .unwrap()
}

/// Somebody else's lock, as every other Redlock library sets it.
pub async fn occupy(server: &Redis, name: &str, ttl: Duration) {
    let mut set = redis::cmd("SET");
    set.arg(name)
        .arg("somebody else")
        .arg("PX")
        .arg(ttl.as_millis() as u64);
    set.exec_async(&mut raw(server).await).await.unwrap();
}

pub async fn run(server: &Redis, command: &[&str]) {
    redis::cmd(command[0])
        .arg(&command[1..])
        .exec_async(&mut raw(server).await)
        .await
        .unwrap();
}

/// How many of the servers have the lock, whoever it belongs to.
pub async fn holding(servers: &[Redis], name: &str) -> usize {
    let mut holding = 0;
    for server in servers {
        holding += usize::from(get(server, name).await.is_some());
    }
    holding
}

/// Background work has an end; it is waited for, and not slept through.
pub async fn becomes(what: &str, condition: impl AsyncFn() -> bool) {
    let since = Instant::now();
    while !condition().await {
        assert!(since.elapsed() < PATIENCE, "it never came true that {what}");
        sleep(ms(5)).await;
    }
}

/// The lock is on every node: the last answers of an acquisition come in after it has returned.
pub async fn is_everywhere(servers: &[Redis], name: &str) {
    becomes("all nodes have the lock", async || {
        holding(servers, name).await == servers.len()
    })
    .await;
}

pub async fn is_nowhere(servers: &[Redis], name: &str) {
    becomes("no node has the lock", async || {
        holding(servers, name).await == 0
    })
    .await;
}

/// How many nodes gave such an answer.
pub fn count(error: &LockError, kind: impl Fn(&Answer) -> bool) -> usize {
    error
        .votes()
        .iter()
        .filter(|vote| kind(&vote.answer))
        .count()
}

pub fn is_held(answer: &Answer) -> bool {
    matches!(answer, Answer::Held { .. })
}

pub fn refused(result: Result<Guard, LockError>) -> LockError {
    result.expect_err("nobody can have this lock")
}

/// For tests that leave the nodes with different high-water marks: with those, a token may be high enough for some of them only.
static UNEVEN: OnceCell<Vec<Redis>> = OnceCell::const_new();

pub async fn uneven_five() -> &'static [Redis] {
    let admitted = async || {
        let servers = start(5).await;
        redlock(&servers).await;
        servers
    };
    UNEVEN.get_or_init(admitted).await
}

/// With a lease that no test waits for and no loaded machine outlasts.
pub async fn patient(servers: &[Redis]) -> Redlock {
    builder(servers)
        .lease(Duration::from_secs(20))
        .build()
        .await
        .unwrap()
}

/// A lock on all of the servers: above the high-water mark of each of them, also if another test has just raised one.
pub async fn acquire_everywhere(redlock: &Redlock, servers: &[Redis], name: &str) -> Guard {
    for _ in 0..100 {
        let marks = redlock
            .status()
            .await
            .into_iter()
            .filter_map(|node| node.high_water)
            .max();
        redlock
            .observe(name, marks.unwrap_or(FencingToken::FIRST))
            .unwrap();
        let guard = redlock.acquire_within(name, PATIENCE).await.unwrap();
        let since = Instant::now();
        while since.elapsed() < ms(200) {
            if holding(servers, name).await == servers.len() {
                return guard;
            }
            sleep(ms(5)).await;
        }
        guard.release().await.unwrap();
    }
    panic!("some node always had a higher mark");
}

/// Like `get`, of what need not be text.
pub async fn value(server: &Redis, key: &str) -> Option<Vec<u8>> {
    redis::cmd("GET")
        .arg(key)
        .query_async(&mut raw(server).await)
        .await
        .unwrap()
}
