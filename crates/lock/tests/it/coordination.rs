//! What the contract does not ask: how the services that keep a queue are used, and that the tokens are really theirs.

use std::{mem, sync::Arc, time::Instant};

use lock::{Guard, Lock, LockError};
use tokio::{
    runtime::Builder,
    task::{AbortHandle, JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

use crate::{
    contract::{PATIENCE, Site},
    site::{becomes, ms, name},
};

#[cfg(feature = "consul")]
mod consul;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "zookeeper")]
mod zookeeper;

/// Servers that keep a queue, and show it.
trait Queue: Site {
    /// The tokens of the holder and of all who wait, in their order.
    async fn queue(&self, name: &str) -> Vec<i64>;

    /// How many watches there are, of anybody on anything.
    async fn watches(&self) -> usize;

    /// Stops the server where it stands: it still takes what is sent, and carries it out later.
    async fn pause(&self);

    async fn resume(&self);
}

type Waiters = JoinSet<Result<Guard, LockError>>;

async fn waits<S: Queue>(site: &S, waiters: &mut Waiters, name: &str) -> AbortHandle {
    let before = site.queue(name).await.len();
    let (lock, owned) = (site.client().await, name.to_owned());
    let handle = waiters.spawn(async move { lock.acquire(&owned).await });
    becomes("it is in the queue", async || {
        site.queue(name).await.len() > before
    })
    .await;
    handle
}

/// Waits in a process, as it were, that ends without a word.
async fn waits_and_vanishes<S: Queue>(site: &Arc<S>, name: &str) {
    let before = site.queue(name).await.len();
    let (site, owned) = (Arc::clone(site), name.to_owned());
    let wait = move || {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let lock = site.client().await;
            let (waiting, name) = (Arc::clone(&lock), owned.clone());
            tokio::spawn(async move { waiting.acquire(&name).await });
            becomes("it is in the queue", async || {
                site.queue(&owned).await.len() > before
            })
            .await;
            mem::forget(lock);
        });
        runtime.shutdown_background();
    };
    spawn_blocking(wait).await.unwrap();
}

async fn next(waiters: &mut Waiters) -> Guard {
    timeout(PATIENCE, waiters.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .unwrap()
}

async fn the_token_is_that_of_the_server<S: Queue>() {
    let (site, name) = (S::shared().await, name("token"));
    let lock = site.client().await;
    for _ in 0..3 {
        let guard = lock.acquire(&name).await.unwrap();
        assert_eq!(site.queue(&name).await, [guard.token().get()]);
        guard.release().await.unwrap();
    }
}

async fn everybody_has_one_watch_and_a_release_moves_one<S: Queue>() {
    const WAITERS: usize = 5;
    let (site, name) = (S::own().await, name("watches"));
    let guard = site.client().await.acquire(&name).await.unwrap().renewed();
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        waits(&site, &mut waiters, &name).await;
    }
    // The holder watches its own place, to be told of its loss.
    becomes("everybody watches once", async || {
        site.watches().await == 1 + WAITERS
    })
    .await;
    let queue = site.queue(&name).await;
    assert!(
        queue.len() == 1 + WAITERS && queue.is_sorted_by(|one, next| one < next),
        "{queue:?}"
    );
    guard.release().await.unwrap();
    let guard = next(&mut waiters).await.renewed();
    assert_eq!(guard.scope().token().get(), queue[1]);
    becomes("only the one in front has moved", async || {
        site.watches().await == WAITERS
    })
    .await;
    assert_eq!(site.queue(&name).await, queue[1..]);
}

/// The lock is held for longer than any lease, and those who wait keep their places.
async fn a_waiter_keeps_its_place_for_longer_than_a_lease<S: Queue>() {
    let (site, name) = (S::shared().await, name("keeps its place"));
    let guard = site.client().await.acquire(&name).await.unwrap().renewed();
    let mut waiters = JoinSet::new();
    waits(site, &mut waiters, &name).await;
    let queue = site.queue(&name).await;
    sleep(S::LEASE * 2).await;
    assert_eq!(site.queue(&name).await, queue);
    guard.release().await.unwrap();
    let guard = next(&mut waiters).await;
    assert_eq!(guard.token().get(), queue[1]);
    assert!(
        guard.validity() > S::LEASE / 2,
        "it has a lease to live on: {:?}",
        guard.validity()
    );
    guard.release().await.unwrap();
}

async fn a_waiter_that_is_gone_holds_up_nobody_behind_it<S: Queue>() {
    let (site, name) = (Arc::new(S::own().await), name("gone"));
    let guard = site.client().await.acquire(&name).await.unwrap().renewed();
    let mut waiters = JoinSet::new();
    let cancelled = waits(&*site, &mut waiters, &name).await;
    waits_and_vanishes(&site, &name).await;
    waits(&*site, &mut waiters, &name).await;
    let queue = site.queue(&name).await;
    assert_eq!(queue.len(), 4);
    cancelled.abort();
    assert!(
        waiters
            .join_next()
            .await
            .unwrap()
            .is_err_and(|error| error.is_cancelled())
    );
    becomes("both are gone", async || {
        site.queue(&name).await == [queue[0], queue[3]]
    })
    .await;
    sleep(ms(300)).await;
    assert_eq!(
        site.queue(&name).await,
        [queue[0], queue[3]],
        "the last one has kept its place"
    );
    assert!(
        waiters.try_join_next().is_none(),
        "and waits for the holder"
    );
    let since = Instant::now();
    guard.release().await.unwrap();
    let guard = next(&mut waiters).await;
    assert!(
        guard.token().get() == queue[3] && since.elapsed() < S::LEASE,
        "{:?}",
        since.elapsed()
    );
    guard.release().await.unwrap();
}

/// Nobody who only asks is ever in front of somebody who waits.
async fn one_who_does_not_wait_is_never_seen_in_the_queue<S: Queue>() {
    let (site, name) = (S::shared().await, name("only asks"));
    let (one, other): (_, Arc<dyn Lock>) = (site.client().await, site.client().await);
    let guard = one.acquire(&name).await.unwrap().renewed();
    for _ in 0..5 {
        assert!(matches!(
            other.try_acquire(&name).await,
            Err(LockError::Held { .. })
        ));
        assert_eq!(site.queue(&name).await.len(), 1);
    }
    guard.release().await.unwrap();
}

/// What was sent is carried out later, also if nobody waits for the answer any more.
async fn a_request_without_an_answer_leaves_nothing_behind<S: Queue>() {
    let (site, name) = (S::own().await, name("no answer"));
    let (one, other) = (site.client().await, site.client().await);
    for lock in [&one, &other] {
        lock.acquire(&name).await.unwrap().release().await.unwrap();
    }
    site.pause().await;
    let since = Instant::now();
    let trying = tokio::spawn({
        let name = name.clone();
        async move { one.try_acquire(&name).await }
    });
    let waiting = tokio::spawn({
        let name = name.clone();
        async move { other.acquire_within(&name, PATIENCE).await }
    });
    let error = trying.await.unwrap().unwrap_err();
    assert!(
        matches!(error, LockError::NoQuorum { .. }) && since.elapsed() < S::LEASE,
        "{error} after {:?}",
        since.elapsed()
    );
    site.resume().await;
    let guard = timeout(PATIENCE, waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .renewed();
    let token = guard.scope().token().get();
    becomes("only the lock is left", async || {
        site.queue(&name).await == [token]
    })
    .await;
    guard.release().await.unwrap();
    sleep(S::LEASE / 4).await;
    assert_eq!(site.queue(&name).await, [0; 0]);
}

macro_rules! queues {
    ($site:ty) => {
        crate::coordination::queues! { $site,
            the_token_is_that_of_the_server
            everybody_has_one_watch_and_a_release_moves_one
            a_waiter_keeps_its_place_for_longer_than_a_lease
            a_waiter_that_is_gone_holds_up_nobody_behind_it
            one_who_does_not_wait_is_never_seen_in_the_queue
            a_request_without_an_answer_leaves_nothing_behind
        }
    };
    ($site:ty, $($test:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                crate::coordination::$test::<$site>().await;
            }
        )+
    };
}
use queues;
