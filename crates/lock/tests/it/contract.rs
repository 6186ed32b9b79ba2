//! One suite that every backend passes on real servers. The differences are in its
//! [`Capabilities`](lock::Capabilities), and are tested as well.
//!
//! A backend takes part with a [`TestEnv`] and a line of `on_every_backend!`.

use std::{
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use lock::{
    Answer, FencingToken, Guard, InvalidArgument, Lock, LockError, ReleaseOutcome, Request, Wait,
};
use testbed::{Deadline, in_time, timeout};
use testkit_macros::tested;
use tokio::{
    runtime::Builder,
    sync::oneshot,
    task::{JoinSet, spawn_blocking},
    time::sleep,
};

use crate::support::{HOUR, becomes, deadline, is_free, is_lost, kept_out, ms, name, refused};

#[cfg(feature = "consul")]
pub mod consul;
#[cfg(feature = "consul")]
pub mod consul_double;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod redlock;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

/// The servers of a backend.
pub trait TestEnv: Sized + Send + Sync + 'static {
    /// Lease of its clients: short enough for a test to wait for, long enough for a loaded machine.
    const LEASE: Duration = ms(1500);

    /// Servers that no test stops.
    async fn shared() -> &'static Self;

    /// Running servers for one test.
    async fn own() -> Self;

    /// Servers on which [`Self::queued`] counts the clients of one test only.
    async fn for_queues() -> &'static Self {
        Self::shared().await
    }

    /// A new client, as another process would have.
    async fn client(&self) -> Arc<dyn Lock> {
        self.client_with_lease(Self::LEASE).await
    }

    /// A new client whose leases outlast every test: what waits for the end of one fails the test.
    async fn patient_client(&self) -> Arc<dyn Lock> {
        self.client_with_lease(HOUR).await
    }

    /// A new client with this lease, and with [`answer_timeout`].
    async fn client_with_lease(&self, lease: Duration) -> Arc<dyn Lock>;

    /// A new client that asks again once in an hour, unless something tells it to.
    async fn seldom_client(&self) -> Arc<dyn Lock>;

    /// A client with a lock-delay, if the backend has that.
    async fn client_with_delay(&self, _delay: Duration) -> Arc<dyn Lock> {
        panic!("only backends with a lock-delay implement this")
    }

    /// Number of clients that wait for the lock, if the backend serves them in their order.
    async fn queued(&self, _name: &str) -> usize {
        panic!("only backends with a queue implement this")
    }

    /// Makes the servers unavailable to all clients, as kill -9 does.
    async fn make_unavailable(&mut self);

    /// Restarts the servers with the data on their disks. Returns when they can give locks again.
    async fn make_available(&mut self);

    /// Removes the lock at the servers without notice to its holder.
    async fn revoke(&self, name: &str);
}

/// How long a client with this lease waits for an answer of its servers.
fn answer_timeout(lease: Duration) -> Duration {
    (lease * 3 / 4).min(timeout())
}

/// Makes a test of a guarantee for each enabled backend.
///
/// With `(unless_stalled)`, the test holds a lock with the lease of its environment, and a failure
/// in a stall repeats it. Any other test runs once: a stall takes no lock on which it counts, so
/// its failure in a stall is a fault.
macro_rules! on_every_backend {
    ($test:ident) => {
        on_every_backend! { $test (once) }
    };
    ($test:ident ($run:ident)) => {
        mod $test {
            use super::*;

            on_every_backend! { $test $run:
                "redis" redis_plain: redis::Single<false>,
                "redis" redis_reentrant: redis::Single<true>,
                "redlock" redlock_unordered: redlock::Nodes<false>,
                "redlock" redlock_fair: redlock::Nodes<true>,
                "postgres" postgres_row: postgres::Postgres<{ postgres::ROW }>,
                "postgres" postgres_advisory: postgres::Postgres<{ postgres::ADVISORY }>,
                "postgres" postgres_for_update: postgres::Postgres<{ postgres::FOR_UPDATE }>,
                "mysql" mariadb_row: mysql::MariaDb<{ mysql::ROW }>,
                "mysql" mariadb_advisory: mysql::MariaDb<{ mysql::ADVISORY }>,
                "mysql" mariadb_for_update: mysql::MariaDb<{ mysql::FOR_UPDATE }>,
                "sqlite" sqlite: sqlite::File,
                "etcd" etcd: etcd::EtcdEnv,
                "zookeeper" zookeeper: zookeeper::ZooKeeperEnv,
                "consul" consul_double: consul::ConsulEnv,
            }
        }
    };
    ($test:ident $run:ident: $($feature:literal $backend:ident: $env:ty,)+) => {
        $(
            #[cfg(feature = $feature)]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $backend() {
                crate::stalls::$run(<$env as TestEnv>::LEASE, super::$test::<$env>).await;
            }
        )+
    };
}

/// How long the servers will keep the lock from other clients, as far as they tell.
fn remaining(error: &LockError) -> impl Iterator<Item = Duration> {
    error.votes().iter().filter_map(|vote| match vote.answer {
        Answer::Held { remaining, .. } => remaining,
        _ => None,
    })
}

/// Acquires the lock as a process that is then killed: its tasks stop and its connections close.
async fn acquire_and_vanish<S: TestEnv>(name: &str) -> FencingToken {
    let (env, name) = (S::shared().await, name.to_owned());
    let hold = move || {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let token = runtime.block_on(async {
            let lock = env.client().await;
            let guard = lock.acquire(&name).await.unwrap();
            let token = guard.token();
            mem::forget(guard);
            mem::forget(lock);
            token
        });
        runtime.shutdown_background();
        token
    };
    spawn_blocking(hold).await.unwrap()
}

/// Moves the lock to another client. An extension may restore the lock of its holder in between, so
/// it is repeated.
async fn take_over<S: TestEnv>(env: &S, lock: &Arc<dyn Lock>, name: &str) -> Guard {
    let deadline = Deadline::start();
    loop {
        env.revoke(name).await;
        match lock.acquire_within(name, ms(200)).await {
            Ok(guard) => return guard,
            Err(error) => deadline.check(error),
        }
    }
}

#[tested(on_every_backend)]
async fn a_lock_has_one_holder<S: TestEnv>() {
    let env = S::shared().await;
    let (one, other) = (env.patient_client().await, env.patient_client().await);
    let name = name("one holder");
    let guard = one.try_acquire(&name).await.unwrap();
    let other_clients = if one.capabilities().reentrant {
        vec![&other]
    } else {
        vec![&one, &other]
    };
    for lock in other_clients {
        let error = refused(lock.try_acquire(&name).await);
        assert!(matches!(error, LockError::Held { .. }), "{error}");
        assert!(
            error.is_retryable() && !error.votes().is_empty(),
            "the error names the node that refused: {error}"
        );
    }
    assert!(!guard.is_lost() && guard.validity() <= HOUR);
    guard.release().await.unwrap();
    is_free(other.try_acquire(&name)).await;
}

#[tested(on_every_backend)]
async fn names_are_compared_exactly<S: TestEnv>() {
    let env = S::shared().await;
    let (lock, other) = (env.patient_client().await, env.patient_client().await);
    let stem = name("Name");
    let long = "n".repeat(1000 - stem.len());
    let strange = [
        "",
        " ",
        "/",
        "/..",
        "/a/b",
        "%2F",
        "'\"\\;--",
        "ünïcode ☃",
        "\n",
        "ß",
        "SS",
        long.as_str(),
    ];
    let lower = stem.to_lowercase();
    let mut names: Vec<_> = strange.iter().map(|end| format!("{stem}{end}")).collect();
    names.extend([lower, format!("/{stem}"), format!(" {stem}")]);
    let mut guards = Vec::new();
    for name in &names {
        let guard = lock
            .try_acquire(name)
            .await
            .unwrap_or_else(|error| panic!("{name:?}: {error}"));
        assert_eq!(guard.sequencer().name, *name);
        guards.push(guard);
    }
    for name in &names {
        let error = refused(other.try_acquire(name).await);
        assert!(matches!(error, LockError::Held { .. }), "{name:?}: {error}");
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tested(on_every_backend)]
async fn a_release_admits_a_waiter<S: TestEnv>() {
    let env = S::shared().await;
    let (one, other) = (env.patient_client().await, env.patient_client().await);
    let name = name("waiter");
    let guard = one.acquire(&name).await.unwrap();
    let token = guard.token();
    let waiter = tokio::spawn({
        let name = name.clone();
        async move { other.acquire(&name).await.unwrap() }
    });
    sleep(ms(300)).await;
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    let guard = in_time("the turn of the waiter", waiter).await.unwrap();
    assert!(guard.token() > token, "{} after {token}", guard.token());
    guard.release().await.unwrap();
}

#[tested(on_every_backend)]
async fn a_waiter_stops_at_its_timeout<S: TestEnv>() {
    let env = S::shared().await;
    let (one, other) = (env.patient_client().await, env.patient_client().await);
    let name = name("gives up");
    let guard = one.acquire(&name).await.unwrap();
    let since = Instant::now();
    let waits = other.acquire_within(&name, ms(400));
    kept_out(in_time("the end of the wait", waits)).await;
    assert!(since.elapsed() >= ms(350), "{:?}", since.elapsed());
    guard.release().await.unwrap();
    is_free(other.acquire_within(&name, timeout())).await;
}

#[tested(on_every_backend(unless_stalled))]
async fn the_lock_of_a_vanished_holder_ends_with_its_lease<S: TestEnv>() {
    let name = name("vanished");
    let lock = S::shared().await.client().await;
    let token = acquire_and_vanish::<S>(&name).await;
    let guard = match lock.try_acquire(&name).await {
        Ok(guard) => guard,
        Err(error) => {
            assert!(
                remaining(&error).all(|remaining| remaining <= S::LEASE),
                "{error}"
            );
            lock.acquire_within(&name, timeout()).await.unwrap()
        }
    };
    assert!(guard.token() > token, "{} after {token}", guard.token());
    guard.release().await.unwrap();
}

#[tested(on_every_backend)]
async fn a_loss_is_reported_and_leaves_the_next_holder_alone<S: TestEnv>() {
    let env = S::shared().await;
    let (one, other) = (env.patient_client().await, env.patient_client().await);
    let name = name("lost");
    let mut guard = one.acquire(&name).await.unwrap();
    let scope = guard.scope();
    let next = take_over(env, &other, &name).await;
    assert!(next.token() > guard.token());
    if one.capabilities().push_loss {
        in_time(
            "a report of the server, long before the lease ends",
            scope.lost(),
        )
        .await;
    }
    let error = guard.extend().await.unwrap_err();
    assert!(
        matches!(error, LockError::Lost { .. }) && !error.is_retryable(),
        "{error}"
    );
    in_time("the loss", scope.lost()).await;
    assert!(scope.is_lost() && scope.cancellation().is_cancelled());
    is_lost(guard.release()).await;
    assert!(
        matches!(
            refused(one.try_acquire(&name).await),
            LockError::Held { .. }
        ),
        "the next holder's lock is untouched"
    );
    next.release().await.unwrap();
}

#[tested(on_every_backend)]
async fn an_extension_restarts_the_lease_and_never_adds_to_it<S: TestEnv>() {
    let lock = S::shared().await.patient_client().await;
    let mut guard = lock.acquire(&name("extension")).await.unwrap();
    let token = guard.token();
    for _ in 0..3 {
        sleep(ms(300)).await;
        let before = deadline(&guard);
        guard.extend().await.unwrap();
        assert!(guard.validity() <= HOUR, "{:?}", guard.validity());
        let later = deadline(&guard) - before;
        assert!(later > ms(100), "the lease ends {later:?} later");
    }
    assert_eq!(guard.token(), token);
    guard.release().await.unwrap();
}

#[tested(on_every_backend)]
async fn invalid_names_are_refused<S: TestEnv>() {
    let lock = S::shared().await.client().await;
    let error = refused(lock.acquire("").await);
    assert!(
        matches!(error, LockError::Invalid(InvalidArgument::EmptyName)),
        "{error}"
    );
    let error = refused(lock.acquire(&"x".repeat(10_000)).await);
    assert!(
        matches!(
            error,
            LockError::Invalid(InvalidArgument::NameTooLong { .. })
        ) && !error.is_retryable(),
        "{error}"
    );
    let error = lock.acquire_all(&[], Wait::Never).await.unwrap_err();
    assert!(
        matches!(error, LockError::Invalid(InvalidArgument::NoNames)),
        "{error}"
    );
}

#[tested(on_every_backend)]
async fn shared_mode_is_as_the_capabilities_state<S: TestEnv>() {
    let env = S::shared().await;
    let (one, other) = (env.patient_client().await, env.patient_client().await);
    let name = name("shared");
    let share = Request::new(&name).shared().wait(Wait::Never);
    if !one.capabilities().shared {
        let error = refused(one.request(share).await);
        return assert!(
            matches!(
                error,
                LockError::Invalid(InvalidArgument::Unsupported { .. })
            ),
            "{error}"
        );
    }
    let mut first = one.request(share).await.unwrap();
    let second = other.request(share).await.unwrap();
    assert!(
        second.token() > first.token(),
        "shared holders have rising tokens too"
    );
    kept_out(one.try_acquire(&name)).await;
    first.extend().await.unwrap();
    second.release().await.unwrap();
    assert!(
        matches!(
            refused(other.try_acquire(&name).await),
            LockError::Held { .. }
        ),
        "one shared holder is left"
    );
    let token = first.token();
    first.release().await.unwrap();
    let alone = other.acquire_within(&name, timeout()).await.unwrap();
    assert!(alone.token() > token);
    kept_out(one.request(share)).await;
    alone.release().await.unwrap();
}

#[tested(on_every_backend(unless_stalled))]
async fn the_lock_delay_is_as_the_capabilities_state<S: TestEnv>() {
    let env = S::shared().await;
    let plain = env.client().await;
    if !plain.capabilities().lock_delay {
        return;
    }
    let (delay, name) = (ms(1500), name("delay"));
    let lock = env.client_with_delay(delay).await;
    let guard = lock.acquire(&name).await.unwrap();
    guard.release().await.unwrap();
    let guard = lock
        .try_acquire(&name)
        .await
        .expect("a release frees the lock immediately");
    let kept_out = async |guard: Guard, goes: fn(Guard)| {
        let (since, scope) = (Instant::now(), guard.scope());
        scope.lost().await;
        let lost_after = since.elapsed();
        goes(guard);
        let next = plain.acquire_within(&name, timeout()).await.unwrap();
        assert!(
            since.elapsed() >= lost_after + delay / 2,
            "{:?}, lost after {lost_after:?}",
            since.elapsed()
        );
        next.release().await.unwrap();
    };
    kept_out(guard, mem::forget).await;
    // A holder that learns of its loss may have requests in flight, as a dead one may.
    kept_out(lock.acquire_within(&name, timeout()).await.unwrap(), drop).await;
}

#[tested(on_every_backend)]
async fn the_order_of_waiters_is_as_the_capabilities_state<S: TestEnv>() {
    if !S::shared().await.client().await.capabilities().fair {
        return;
    }
    let env = S::for_queues().await;
    let lock = env.patient_client().await;
    let name = Arc::new(name("order"));
    let guard = lock.acquire(&name).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for number in 0..5 {
        let (lock, order) = (env.patient_client().await, Arc::clone(&order));
        let waiting = Arc::clone(&name);
        waiters.spawn(async move {
            let guard = lock.acquire(&waiting).await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        });
        becomes("the waiter is in the queue", async || {
            env.queued(&name).await == number + 1
        })
        .await;
    }
    guard.release().await.unwrap();
    in_time("the turn of each waiter", waiters.join_all()).await;
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
}

#[tested(on_every_backend)]
async fn contenders_exclude_each_other_and_their_tokens_rise<S: TestEnv>() {
    const EACH: usize = 5;
    let env = S::shared().await;
    let name = Arc::new(name("contended"));
    let (inside, tokens) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(Mutex::new(Vec::new())),
    );
    let mut contenders = JoinSet::new();
    for _ in 0..4 {
        let (lock, name, inside, tokens) = (
            env.patient_client().await,
            Arc::clone(&name),
            Arc::clone(&inside),
            Arc::clone(&tokens),
        );
        contenders.spawn(async move {
            for _ in 0..EACH {
                let guard = lock.acquire_within(&name, timeout()).await.unwrap();
                assert!(
                    !inside.swap(true, Ordering::SeqCst),
                    "two holders at the same time"
                );
                tokens.lock().unwrap().push(guard.token());
                sleep(ms(1)).await;
                inside.store(false, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        });
    }
    contenders.join_all().await;
    let tokens = tokens.lock().unwrap();
    assert_eq!(tokens.len(), 4 * EACH);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

#[tested(on_every_backend)]
async fn dropping_a_guard_frees_the_lock<S: TestEnv>() {
    let env = S::shared().await;
    let (one, other) = (env.patient_client().await, env.patient_client().await);
    let name = name("dropped");
    drop(one.acquire(&name).await.unwrap());
    // Otherwise the lock would expire in an hour.
    is_free(other.acquire_within(&name, timeout())).await;
}

#[tested(on_every_backend(unless_stalled))]
async fn renewal_continues_until_the_last_handle_is_released<S: TestEnv>() {
    let env = S::shared().await;
    let (one, other) = (env.client().await, env.client().await);
    let name = name("renewed");
    let first = one.acquire(&name).await.unwrap().renewed();
    let second = first.enter().unwrap();
    sleep(S::LEASE * 3 / 2).await;
    kept_out(other.try_acquire(&name)).await;
    assert_eq!(first.release().await.unwrap(), ReleaseOutcome::StillHeld);
    kept_out(other.try_acquire(&name)).await;
    assert!(!second.scope().is_lost());
    assert_eq!(second.release().await.unwrap(), ReleaseOutcome::Released);
    is_free(other.acquire_within(&name, timeout())).await;
}

#[tested(on_every_backend)]
async fn unavailable_servers_are_an_error_until_they_return<S: TestEnv>() {
    let mut env = S::own().await;
    let lock = env.client().await;
    let name = name("away");
    let guard = lock.acquire(&name).await.unwrap();
    let token = guard.token();
    env.make_unavailable().await;
    // At the local deadline, whatever the network does. A busy machine delays both.
    let overdue = async {
        sleep(guard.validity()).await;
        for _ in 0..50 {
            sleep(ms(20)).await;
        }
    };
    tokio::select! {
        biased;
        () = guard.lost() => {}
        () = overdue => panic!("the loss was not reported at the deadline"),
    }
    let another = format!("{name}, another");
    let error = refused(in_time("an error", lock.acquire(&another)).await);
    assert!(
        matches!(error, LockError::NoQuorum { .. }) && error.is_retryable(),
        "{error}"
    );
    assert!(
        !error.votes().is_empty(),
        "the error carries the answers of the servers: {error}"
    );
    let error = in_time("the end of the release", guard.release())
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    env.make_available().await;
    let guard = lock.acquire_within(&name, timeout()).await.unwrap();
    assert!(guard.token() > token, "{} after {token}", guard.token());
    // A busy machine may have let the short lease end.
    let _ = guard.release().await;
}

/// Nothing tells a waiter that the servers are well again. Its pause between two attempts is meant
/// for a lock that is held, and may be long.
#[tested(on_every_backend(unless_stalled))]
async fn a_waiter_that_met_an_error_does_not_wait_for_its_next_retry<S: TestEnv>() {
    let mut env = S::own().await;
    let (lock, name) = (env.seldom_client().await, name("away for a moment"));
    env.make_unavailable().await;
    let waiting = tokio::spawn({
        let (lock, name) = (Arc::clone(&lock), name.clone());
        async move { lock.acquire_within(&name, HOUR).await }
    });
    // It takes as long as the first attempt of the waiter, which began before.
    let error = in_time("an error", lock.try_acquire(&name)).await;
    assert!(
        matches!(refused(error), LockError::NoQuorum { .. }),
        "no server replies"
    );
    env.make_available().await;
    let guard = in_time("the lock", waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tested(on_every_backend(unless_stalled))]
async fn several_locks_are_held_as_one<S: TestEnv>() {
    let env = S::shared().await;
    let (one, other) = (env.client().await, env.client().await);
    let (a, b, c) = (name("several a"), name("several b"), name("several c"));
    let mut set = one
        .acquire_all(&[&c, &a, &b, &a], Wait::AtMost(timeout()))
        .await
        .unwrap();
    assert_eq!(
        set.sequencers()
            .iter()
            .map(|sequencer| &sequencer.name)
            .collect::<Vec<_>>(),
        [&a, &b, &c]
    );
    set.run(async |scopes| {
        assert_eq!(scopes.len(), 3);
        sleep(S::LEASE * 3 / 2).await;
        for name in [&a, &b, &c] {
            kept_out(other.try_acquire(name)).await;
        }
    })
    .await
    .unwrap();
    set.release().await.unwrap();
    // All or none.
    let guard = other.acquire(&c).await.unwrap().renewed();
    let error = one
        .acquire_all(&[&a, &c], Wait::AtMost(ms(100)))
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::Held { .. }), "{error}");
    other
        .acquire_within(&a, timeout())
        .await
        .expect("the partial acquisition was released")
        .release()
        .await
        .unwrap();
    guard.release().await.unwrap();
    // Two callers with opposite orders do not deadlock.
    let both = async |lock: &Arc<dyn Lock>, names: [&str; 2]| {
        for _ in 0..3 {
            let set = lock
                .acquire_all(&names, Wait::AtMost(timeout()))
                .await
                .unwrap();
            set.release().await.unwrap();
        }
    };
    tokio::join!(both(&one, [&a, &b]), both(&other, [&b, &a]));
}

#[tested(on_every_backend(unless_stalled))]
async fn a_body_runs_under_the_lock_for_longer_than_a_lease<S: TestEnv>() {
    let env = S::shared().await;
    let (one, other) = (env.client().await, env.client().await);
    let name = name("body");
    let mut guard = one.acquire(&name).await.unwrap();
    let token = guard.token();
    let answer = guard.run(async |scope| {
        sleep(S::LEASE * 3 / 2).await;
        kept_out(other.try_acquire(&name)).await;
        scope.token()
    });
    assert_eq!(answer.await.unwrap(), token);
    // After a loss the body is dropped at its current await.
    let (ended, end) = oneshot::channel::<()>();
    let error = guard
        .run(async |_| {
            let _dropped_with_the_body = ended;
            let _next = take_over(env, &other, &name).await;
            std::future::pending::<()>().await
        })
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    assert!(end.await.is_err());
}

#[tested(on_every_backend)]
async fn a_cancelled_wait_leaves_nothing_behind<S: TestEnv>() {
    let env = S::shared().await;
    let (one, other) = (env.patient_client().await, env.patient_client().await);
    let name = name("cancelled");
    let guard = one.acquire(&name).await.unwrap();
    for wait in [1, 5, 20, 100] {
        let waits = other.acquire(&name);
        assert!(tokio::time::timeout(ms(wait), waits).await.is_err());
    }
    guard.release().await.unwrap();
    // A cancelled waiter that had the lock would keep it for an hour.
    let next = one.acquire_within(&name, timeout()).await.unwrap();
    next.release().await.unwrap();
}
