//! Guarantees of the coordination services beyond the contract: how the queue is used, and that the
//! tokens are those of the server.

use std::{mem, sync::Arc, time::Instant};

use lock::{Guard, InvalidArgument, Lock, LockError};
use testbed::{in_time, timeout};
use testkit_macros::tested;
use tokio::{
    runtime::Builder,
    task::{AbortHandle, JoinSet, spawn_blocking},
    time::sleep,
};

use crate::{
    contract::TestEnv,
    support::{becomes, is_free, kept_out, ms, name},
};

#[cfg(feature = "consul")]
mod consul;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "zookeeper")]
mod zookeeper;

/// The builder refuses the duration of this setting.
fn refuses_duration<T>(expected: &str, built: Result<T, InvalidArgument>) {
    let refused = built.err();
    assert!(
        matches!(refused, Some(InvalidArgument::Duration { setting, .. }) if setting == expected),
        "{expected}: {refused:?}"
    );
}

/// The builder refuses what it was given as an address, or as a part of one.
#[cfg(any(feature = "zookeeper", feature = "consul"))]
fn refuses_url<T>(given: &str, built: Result<T, InvalidArgument>) {
    assert!(
        matches!(built, Err(InvalidArgument::Url { .. })),
        "{given:?}"
    );
}

/// Servers with a queue that a test can inspect.
trait Queue: TestEnv {
    /// Tokens of the holder and of all waiters, in the order of the queue.
    async fn queue(&self, name: &str) -> Vec<i64>;

    /// Number of all watches at the server.
    async fn watches(&self) -> usize;

    /// Suspends the server: it still receives requests, and carries them out later.
    async fn pause(&self);

    async fn resume(&self);
}

/// Makes a test of a function for each service with a queue. All these functions hold a lock with
/// the lease of their environment.
macro_rules! on_every_queue {
    ($test:ident) => {
        mod $test {
            #[cfg(feature = "etcd")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn etcd() {
                use crate::contract::{TestEnv, etcd::EtcdEnv};
                crate::stalls::unless_stalled(EtcdEnv::LEASE, super::$test::<EtcdEnv>).await;
            }

            #[cfg(feature = "zookeeper")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn zookeeper() {
                use crate::contract::{TestEnv, zookeeper::ZooKeeperEnv};
                crate::stalls::unless_stalled(ZooKeeperEnv::LEASE, super::$test::<ZooKeeperEnv>)
                    .await;
            }
        }
    };
}

type Waiters = JoinSet<Result<Guard, LockError>>;

async fn waits<S: Queue>(env: &S, waiters: &mut Waiters, name: &str) -> AbortHandle {
    waits_at(env, env.patient_client().await, waiters, name).await
}

async fn waits_at<S: Queue>(
    env: &S,
    lock: Arc<dyn Lock>,
    waiters: &mut Waiters,
    name: &str,
) -> AbortHandle {
    let before = env.queue(name).await.len();
    let owned = name.to_owned();
    let handle = waiters.spawn(async move { lock.acquire(&owned).await });
    becomes("the waiter is in the queue", async || {
        env.queue(name).await.len() > before
    })
    .await;
    handle
}

/// Waits as a process that is then killed.
async fn waits_and_vanishes<S: Queue>(env: &Arc<S>, name: &str) {
    let before = env.queue(name).await.len();
    let (env, owned) = (Arc::clone(env), name.to_owned());
    let wait = move || {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let lock = env.client().await;
            let (waiting, name) = (Arc::clone(&lock), owned.clone());
            tokio::spawn(async move { waiting.acquire(&name).await });
            becomes("the waiter is in the queue", async || {
                env.queue(&owned).await.len() > before
            })
            .await;
            mem::forget(lock);
        });
        runtime.shutdown_background();
    };
    spawn_blocking(wait).await.unwrap();
}

async fn next(waiters: &mut Waiters) -> Guard {
    in_time("the turn of a waiter", waiters.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap()
}

#[tested(on_every_queue)]
async fn the_token_is_the_creation_number_of_the_server<S: Queue>() {
    let (env, name) = (S::shared().await, name("token"));
    let lock = env.client().await;
    for _ in 0..3 {
        let guard = lock.acquire(&name).await.unwrap();
        assert_eq!(env.queue(&name).await, [guard.token().get()]);
        guard.release().await.unwrap();
    }
}

#[tested(on_every_queue)]
async fn each_client_has_one_watch_and_a_release_moves_one<S: Queue>() {
    const WAITERS: usize = 5;
    let (env, name) = (S::own().await, name("watches"));
    let guard = env.client().await.acquire(&name).await.unwrap().renewed();
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        waits(&env, &mut waiters, &name).await;
    }
    // The holder watches its own node, to notice a loss.
    becomes("each client has one watch", async || {
        env.watches().await == 1 + WAITERS
    })
    .await;
    let queue = env.queue(&name).await;
    assert!(
        queue.len() == 1 + WAITERS && queue.is_sorted_by(|one, next| one < next),
        "{queue:?}"
    );
    guard.release().await.unwrap();
    let guard = next(&mut waiters).await.renewed();
    assert_eq!(guard.scope().token().get(), queue[1]);
    becomes("only the first waiter has moved its watch", async || {
        env.watches().await == WAITERS
    })
    .await;
    assert_eq!(env.queue(&name).await, queue[1..]);
}

/// The lock is held for longer than a lease, and the waiters keep their positions.
#[tested(on_every_queue)]
async fn a_waiter_keeps_its_position_for_longer_than_a_lease<S: Queue>() {
    let (env, name) = (S::shared().await, name("keeps its position"));
    let guard = env.client().await.acquire(&name).await.unwrap().renewed();
    let mut waiters = JoinSet::new();
    waits_at(env, env.client().await, &mut waiters, &name).await;
    let queue = env.queue(&name).await;
    sleep(S::LEASE * 2).await;
    assert_eq!(env.queue(&name).await, queue);
    let released = Instant::now();
    guard.release().await.unwrap();
    let guard = next(&mut waiters).await;
    assert_eq!(guard.token().get(), queue[1]);
    let left = guard.validity() + released.elapsed();
    assert!(
        left > S::LEASE / 2,
        "the new holder had most of a lease left: {left:?}"
    );
    guard.release().await.unwrap();
}

#[tested(on_every_queue)]
async fn a_vanished_waiter_does_not_delay_the_next_one<S: Queue>() {
    let (env, name) = (Arc::new(S::own().await), name("gone"));
    let guard = env.client().await.acquire(&name).await.unwrap().renewed();
    let mut waiters = JoinSet::new();
    let cancelled = waits(&*env, &mut waiters, &name).await;
    waits_and_vanishes(&env, &name).await;
    waits(&*env, &mut waiters, &name).await;
    let queue = env.queue(&name).await;
    assert_eq!(queue.len(), 4);
    cancelled.abort();
    assert!(
        waiters
            .join_next()
            .await
            .unwrap()
            .is_err_and(|error| error.is_cancelled())
    );
    becomes("both have left the queue", async || {
        env.queue(&name).await == [queue[0], queue[3]]
    })
    .await;
    sleep(ms(300)).await;
    assert_eq!(
        env.queue(&name).await,
        [queue[0], queue[3]],
        "the last waiter has kept its position"
    );
    assert!(
        waiters.try_join_next().is_none(),
        "the last waiter still waits for the holder"
    );
    guard.release().await.unwrap();
    // Without a notice it would wait for an hour.
    let guard = next(&mut waiters).await;
    assert_eq!(guard.token().get(), queue[3]);
    guard.release().await.unwrap();
}

/// A single attempt never delays a waiter.
#[tested(on_every_queue)]
async fn a_single_attempt_never_enters_the_queue<S: Queue>() {
    let (env, name) = (S::shared().await, name("single attempt"));
    let (one, other): (_, Arc<dyn Lock>) = (env.client().await, env.client().await);
    let guard = one.acquire(&name).await.unwrap().renewed();
    for _ in 0..5 {
        kept_out(other.try_acquire(&name)).await;
        assert_eq!(env.queue(&name).await.len(), 1);
    }
    guard.release().await.unwrap();
}

/// The server carries out a request later, also if its caller has gone.
#[tested(on_every_queue)]
async fn a_request_without_an_answer_leaves_nothing_behind<S: Queue>() {
    let (env, name) = (S::own().await, name("no answer"));
    let (one, other) = (env.client().await, env.client().await);
    for lock in [&one, &other] {
        is_free(lock.acquire(&name)).await;
    }
    env.pause().await;
    let trying = tokio::spawn({
        let name = name.clone();
        async move { one.try_acquire(&name).await }
    });
    let waiting = tokio::spawn({
        let name = name.clone();
        async move { other.acquire_within(&name, timeout()).await }
    });
    // The server does not answer before that.
    let error = in_time("the end of the attempt", trying).await.unwrap();
    let error = error.unwrap_err();
    assert!(matches!(error, LockError::NoQuorum { .. }), "{error}");
    env.resume().await;
    let guard = in_time("the turn of the waiter", waiting)
        .await
        .unwrap()
        .unwrap()
        .renewed();
    let token = guard.scope().token().get();
    becomes("the queue holds only the lock", async || {
        env.queue(&name).await == [token]
    })
    .await;
    guard.release().await.unwrap();
    sleep(S::LEASE / 4).await;
    assert_eq!(env.queue(&name).await, [0; 0]);
}
