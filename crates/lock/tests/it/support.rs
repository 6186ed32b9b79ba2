//! Independent Redis servers, and helpers that inspect them without the library.

use std::{
    fmt::Debug,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use lock::{
    Answer, FencingToken, Guard, Lock, LockError, Redlock, RedlockBuilder, Request, Standing, Wait,
};
use redis::aio::MultiplexedConnection;
use testbed::{Redis, eventually, timeout};
use tokio::{sync::OnceCell, time::sleep};

/// For tests that leave the servers intact. All of them vote. They live as long as the process.
static SHARED: OnceCell<Vec<Redis>> = OnceCell::const_new();
static NAMES: AtomicU32 = AtomicU32::new(0);

/// A lease, or a pause, that no test outlasts: what waits for its end fails the test by its
/// time-out.
pub const HOUR: Duration = Duration::from_secs(60 * 60);

/// Lease of the clients of [`builder`]: long enough for a loaded machine, and short enough for a
/// test to wait for.
pub const LEASE: Duration = ms(1500);

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
        admit(&servers).await;
        servers
    };
    SHARED.get_or_init(admitted).await
}

/// Lets new servers vote. A client with a short lease does it, so clients with long ones need not
/// wait.
pub async fn admit(servers: &[Redis]) {
    let hasty = builder(servers).lease(ms(300)).node_timeout(ms(200));
    let redlock = hasty.build().await.unwrap();
    becomes("all of them vote", async || {
        redlock
            .status()
            .await
            .iter()
            .all(|node| matches!(node.standing, Standing::Voting))
    })
    .await;
}

/// Clients with a short lease, and with time for slow nodes.
pub fn builder(servers: &[Redis]) -> RedlockBuilder {
    RedlockBuilder::new(servers.iter().map(Redis::url))
        .lease(LEASE)
        .node_timeout(ms(1000))
}

pub async fn redlock(servers: &[Redis]) -> Redlock {
    builder(servers).build().await.unwrap()
}

/// A separate connection to one server.
pub async fn raw(server: &Redis) -> MultiplexedConnection {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout()))
        .set_response_timeout(Some(timeout()));
    let client = redis::Client::open(server.url()).unwrap();
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    connecting.await.unwrap()
}

pub async fn get(server: &Redis, key: &str) -> Option<String> {
    redis::cmd("GET")
        .arg(key)
        .query_async(&mut raw(server).await)
        .await
        .unwrap()
}

/// Sets the lock of another owner, as every other Redlock library does.
pub async fn occupy(server: &Redis, name: &str, ttl: Duration) {
    let mut set = redis::cmd("SET");
    set.arg(name)
        .arg("another owner")
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

/// Number of servers that store the lock, of any owner.
pub async fn holding(servers: &[Redis], name: &str) -> usize {
    let mut holding = 0;
    for server in servers {
        holding += usize::from(get(server, name).await.is_some());
    }
    holding
}

/// Polls until the condition holds, so that no test sleeps for a fixed time.
pub async fn becomes(what: &str, condition: impl AsyncFn() -> bool) {
    eventually(what, condition).await;
}

/// What is left of a key at the server, in milliseconds: -1 without an end, -2 without the key.
pub async fn pttl(server: &Redis, key: &str) -> i64 {
    redis::cmd("PTTL")
        .arg(key)
        .query_async(&mut raw(server).await)
        .await
        .unwrap()
}

/// When the lease of a guard ends, by its own clock. A sample that the machine interrupted is
/// repeated.
pub fn deadline(guard: &Guard) -> Instant {
    loop {
        let now = Instant::now();
        let validity = guard.validity();
        if now.elapsed() < ms(10) {
            return now + validity;
        }
    }
}

/// Waits until the lock is on every node. The last answers of an acquisition arrive after it has
/// returned.
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

/// Number of nodes with such an answer.
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
    result.expect_err("the lock must not be acquired")
}

/// The lock is not acquired, because another has it.
pub async fn kept_out(acquiring: impl Future<Output = Result<Guard, LockError>>) {
    let error = refused(acquiring.await);
    assert!(matches!(error, LockError::Held { .. }), "{error}");
}

/// The lock can be acquired, and is released again.
pub async fn is_free(acquiring: impl Future<Output = Result<Guard, LockError>>) {
    acquiring.await.unwrap().release().await.unwrap();
}

/// A holder that extends or releases its lock is told that it was lost.
pub async fn is_lost<T: Debug>(holding: impl Future<Output = Result<T, LockError>>) {
    let error = holding.await.unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
}

/// For tests that leave the nodes with different high-water marks, so that a token may be high
/// enough for some of them only.
static UNEVEN: OnceCell<Vec<Redis>> = OnceCell::const_new();

pub async fn uneven_five() -> &'static [Redis] {
    let admitted = async || {
        let servers = start(5).await;
        admit(&servers).await;
        servers
    };
    UNEVEN.get_or_init(admitted).await
}

/// A lock with a lease that never ends during a test, and with time for slow nodes. New servers
/// must have been admitted.
pub async fn patient(servers: &[Redis]) -> Redlock {
    builder(servers)
        .lease(HOUR)
        .node_timeout(timeout())
        .build()
        .await
        .unwrap()
}

/// Acquires a lock on all servers: with a token above the high-water mark of each, also if another
/// test has just raised one, and when each of them votes, also if some have just been started.
pub async fn acquire_everywhere(redlock: &Redlock, servers: &[Redis], name: &str) -> Guard {
    everywhere(
        (redlock, name),
        async || redlock.acquire_within(name, timeout()).await,
        async || have_one_owner(servers, name).await,
    )
    .await
}

/// The same for a lock that others may share.
pub async fn share_everywhere(redlock: &Redlock, servers: &[Redis], name: &str) -> Guard {
    let shared = || Request::new(name).shared().wait(Wait::Never);
    everywhere(
        (redlock, name),
        async || redlock.request(shared()).await,
        async || holding(servers, name).await == servers.len(),
    )
    .await
}

async fn everywhere(
    (redlock, name): (&Redlock, &str),
    acquire: impl AsyncFn() -> Result<Guard, LockError>,
    is_everywhere: impl AsyncFn() -> bool,
) -> Guard {
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
        let guard = acquire().await.unwrap();
        let since = Instant::now();
        while since.elapsed() < ms(200) {
            if is_everywhere().await {
                return guard;
            }
            sleep(ms(5)).await;
        }
        // Its lease may have ended on a busy machine.
        let _ = guard.release().await;
    }
    panic!("in every attempt a node had a higher mark");
}

/// Whether all servers have a value for the key, and the same one: a server that was not in the
/// quorum may still have an earlier owner, whose value need not be text.
async fn have_one_owner(servers: &[Redis], key: &str) -> bool {
    let first = value(&servers[0], key).await;
    for server in servers {
        if value(server, key).await != first {
            return false;
        }
    }
    first.is_some()
}

/// Like `get`, for values that need not be text.
pub async fn value(server: &Redis, key: &str) -> Option<Vec<u8>> {
    redis::cmd("GET")
        .arg(key)
        .query_async(&mut raw(server).await)
        .await
        .unwrap()
}
