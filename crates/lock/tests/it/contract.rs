//! One suite for every backend, on real servers. What differs is in its [`Capabilities`](lock::Capabilities), and is tested as well.
//!
//! A backend takes part with a [`Site`] and one line: `contract!(name, Site)`.

use std::{
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use lock::{FencingToken, Guard, InvalidArgument, Left, Lock, LockError, Patience, Request};
use tokio::{
    runtime::Builder,
    sync::oneshot,
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

use crate::site::{ms, name};

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
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

/// The servers of a backend.
pub trait Site: Sized + Send + Sync + 'static {
    /// The lease of its clients: short enough to wait for, and long enough for a loaded machine.
    const LEASE: Duration = ms(1500);

    /// Servers that nobody breaks.
    async fn shared() -> &'static Self;

    /// Servers of one's own, that work.
    async fn own() -> Self;

    /// A client of its own, as another process would have.
    async fn client(&self) -> Arc<dyn Lock>;

    /// A client with a lock-delay, if the backend has that.
    async fn client_with_delay(&self, _delay: Duration) -> Arc<dyn Lock> {
        panic!("for backends whose capabilities say so")
    }

    /// Takes the servers from everybody, as by kill -9.
    async fn break_down(&mut self);

    /// Brings them back with what they had on their disks, and returns when they can give locks again.
    async fn mend(&mut self);

    /// Takes the lock from its holder behind its back.
    async fn steal(&self, name: &str);
}

/// Nothing takes longer on a loaded machine unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);

macro_rules! contract {
    ($backend:ident, $site:ty) => {
        $crate::contract::contract! { $backend, $site,
            a_lock_has_one_holder
            a_name_is_told_from_every_other
            a_release_lets_a_waiter_in
            a_waiter_gives_up_in_time
            a_vanished_holder_is_outlived_by_its_lease_and_no_longer
            a_lost_lock_is_told_and_does_no_harm
            an_extension_sets_the_lease_anew_and_never_adds
            bad_names_are_refused
            capabilities_are_true_of_sharing
            capabilities_are_true_of_the_lock_delay
            capabilities_are_true_of_the_order_of_waiters
            contenders_are_kept_apart_and_numbered
            dropping_a_guard_frees_the_lock
            renewal_goes_on_until_the_last_has_left
            servers_that_are_away_are_an_error_and_their_return_is_noticed
            several_locks_are_held_as_one
            the_body_is_kept_under_the_lock_for_longer_than_a_lease
            waiting_leaves_nothing_behind
        }
    };
    ($backend:ident, $site:ty, $($test:ident)+) => {
        mod $backend {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    $crate::contract::$test::<$site>().await;
                }
            )+
        }
    };
}
pub(crate) use contract;

fn refused(result: Result<Guard, LockError>) -> LockError {
    result.expect_err("nobody can have this lock")
}

/// At the latest, by the clocks of others, a lease is over.
fn slack(lease: Duration) -> Duration {
    lease + Duration::from_secs(3)
}

/// Acquires in a process, as it were, that ends without a word: its tasks stop and its connections close.
async fn vanish<S: Site>(name: &str) -> FencingToken {
    let (site, name) = (S::shared().await, name.to_owned());
    let hold = move || {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let token = runtime.block_on(async {
            let lock = site.client().await;
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

/// Somebody else has it now. An extension may have given it back to its holder in between.
async fn take_over<S: Site>(site: &S, lock: &Arc<dyn Lock>, name: &str) -> Guard {
    let since = Instant::now();
    loop {
        site.steal(name).await;
        match lock.acquire_within(name, ms(200)).await {
            Ok(guard) => return guard,
            Err(error) => assert!(since.elapsed() < PATIENCE, "{error}"),
        }
    }
}

pub async fn a_lock_has_one_holder<S: Site>() {
    let site = S::shared().await;
    let (one, other) = (site.client().await, site.client().await);
    let name = name("one holder");
    let guard = one.try_acquire(&name).await.unwrap();
    let strangers = if one.capabilities().reentrant {
        vec![&other]
    } else {
        vec![&one, &other]
    };
    for lock in strangers {
        let error = refused(lock.try_acquire(&name).await);
        assert!(matches!(error, LockError::Held { .. }), "{error}");
        assert!(
            error.is_retryable() && !error.votes().is_empty(),
            "it says who said no: {error}"
        );
    }
    assert!(!guard.is_lost() && guard.validity() <= S::LEASE);
    guard.release().await.unwrap();
    other
        .try_acquire(&name)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

pub async fn a_name_is_told_from_every_other<S: Site>() {
    let site = S::shared().await;
    let (lock, other) = (site.client().await, site.client().await);
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

pub async fn a_release_lets_a_waiter_in<S: Site>() {
    let site = S::shared().await;
    let (one, other) = (site.client().await, site.client().await);
    let name = name("waiter");
    let guard = one.acquire(&name).await.unwrap().renewed();
    let token = guard.scope().token();
    let waiter = tokio::spawn({
        let name = name.clone();
        async move { other.acquire(&name).await.unwrap() }
    });
    sleep(ms(300)).await;
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    let guard = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(guard.token() > token, "{} after {token}", guard.token());
    guard.release().await.unwrap();
}

pub async fn a_waiter_gives_up_in_time<S: Site>() {
    let site = S::shared().await;
    let (one, other) = (site.client().await, site.client().await);
    let name = name("gives up");
    let guard = one.acquire(&name).await.unwrap().renewed();
    let since = Instant::now();
    let error = refused(other.acquire_within(&name, ms(400)).await);
    assert!(matches!(error, LockError::Held { .. }), "{error}");
    assert!(
        (ms(350)..ms(2500)).contains(&since.elapsed()),
        "{:?}",
        since.elapsed()
    );
    guard.release().await.unwrap();
    other
        .acquire_within(&name, PATIENCE)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

pub async fn a_vanished_holder_is_outlived_by_its_lease_and_no_longer<S: Site>() {
    let name = name("vanished");
    let lock = S::shared().await.client().await;
    let since = Instant::now();
    let token = vanish::<S>(&name).await;
    let guard = lock.acquire_within(&name, PATIENCE).await.unwrap();
    assert!(since.elapsed() < slack(S::LEASE), "{:?}", since.elapsed());
    assert!(guard.token() > token, "{} after {token}", guard.token());
    guard.release().await.unwrap();
}

pub async fn a_lost_lock_is_told_and_does_no_harm<S: Site>() {
    let site = S::shared().await;
    let (one, other) = (site.client().await, site.client().await);
    let name = name("lost");
    let mut guard = one.acquire(&name).await.unwrap();
    let scope = guard.scope();
    let next = take_over(site, &other, &name).await;
    assert!(next.token() > guard.token());
    let since = Instant::now();
    if one.capabilities().push_loss {
        timeout(S::LEASE / 2, scope.lost())
            .await
            .expect("the server tells of a loss before the lease is over");
    }
    let error = guard.extend().await.unwrap_err();
    assert!(
        matches!(error, LockError::Lost { .. }) && !error.is_retryable(),
        "{error}"
    );
    timeout(S::LEASE, scope.lost()).await.unwrap();
    assert!(since.elapsed() <= S::LEASE && scope.is_lost() && scope.cancellation().is_cancelled());
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    assert!(
        matches!(
            refused(one.try_acquire(&name).await),
            LockError::Held { .. }
        ),
        "the other's lock is untouched"
    );
    next.release().await.unwrap();
}

pub async fn an_extension_sets_the_lease_anew_and_never_adds<S: Site>() {
    let lock = S::shared().await.client().await;
    let mut guard = lock.acquire(&name("extension")).await.unwrap();
    let token = guard.token();
    for _ in 0..3 {
        sleep(S::LEASE / 5).await;
        let before = guard.validity();
        guard.extend().await.unwrap();
        assert!(
            guard.validity() > before && guard.validity() <= S::LEASE,
            "{:?} after {before:?}",
            guard.validity()
        );
    }
    assert_eq!(guard.token(), token);
    guard.release().await.unwrap();
}

pub async fn bad_names_are_refused<S: Site>() {
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
    let error = lock.acquire_all(&[], Patience::None).await.unwrap_err();
    assert!(
        matches!(error, LockError::Invalid(InvalidArgument::NoNames)),
        "{error}"
    );
}

pub async fn capabilities_are_true_of_sharing<S: Site>() {
    let site = S::shared().await;
    let (one, other) = (site.client().await, site.client().await);
    let name = name("shared");
    let share = Request::new(&name).shared().patience(Patience::None);
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
        "sharers are numbered as well"
    );
    assert!(matches!(
        refused(one.try_acquire(&name).await),
        LockError::Held { .. }
    ));
    first.extend().await.unwrap();
    second.release().await.unwrap();
    assert!(
        matches!(
            refused(other.try_acquire(&name).await),
            LockError::Held { .. }
        ),
        "one still has it"
    );
    let token = first.token();
    first.release().await.unwrap();
    let alone = other.acquire_within(&name, PATIENCE).await.unwrap();
    assert!(alone.token() > token);
    assert!(matches!(
        refused(one.request(share).await),
        LockError::Held { .. }
    ));
    alone.release().await.unwrap();
}

pub async fn capabilities_are_true_of_the_lock_delay<S: Site>() {
    let site = S::shared().await;
    let plain = site.client().await;
    if !plain.capabilities().lock_delay {
        return;
    }
    let (delay, name) = (ms(1500), name("delay"));
    let lock = site.client_with_delay(delay).await;
    let guard = lock.acquire(&name).await.unwrap();
    guard.release().await.unwrap();
    let guard = lock
        .try_acquire(&name)
        .await
        .expect("a release frees at once");
    let kept_out = async |guard: Guard, goes: fn(Guard)| {
        let (since, scope) = (Instant::now(), guard.scope());
        scope.lost().await;
        let lost_after = since.elapsed();
        goes(guard);
        let next = plain.acquire_within(&name, PATIENCE).await.unwrap();
        assert!(
            since.elapsed() >= lost_after + delay / 2,
            "{:?}, lost after {lost_after:?}",
            since.elapsed()
        );
        next.release().await.unwrap();
    };
    kept_out(guard, mem::forget).await;
    // Whoever is told of the loss may have requests on their way as well as who has died.
    kept_out(lock.acquire_within(&name, PATIENCE).await.unwrap(), drop).await;
}

pub async fn capabilities_are_true_of_the_order_of_waiters<S: Site>() {
    let site = S::shared().await;
    let lock = site.client().await;
    if !lock.capabilities().fair {
        return;
    }
    let name = Arc::new(name("order"));
    let guard = lock.acquire(&name).await.unwrap().renewed();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for number in 0..5 {
        let (lock, name, order) = (site.client().await, Arc::clone(&name), Arc::clone(&order));
        waiters.spawn(async move {
            let guard = lock.acquire(&name).await.unwrap();
            order.lock().unwrap().push(number);
            guard.release().await.unwrap();
        });
        // It is in the queue before the next one comes.
        sleep(ms(150)).await;
    }
    guard.release().await.unwrap();
    timeout(PATIENCE, waiters.join_all()).await.unwrap();
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
}

pub async fn contenders_are_kept_apart_and_numbered<S: Site>() {
    const EACH: usize = 5;
    let site = S::shared().await;
    let name = Arc::new(name("contended"));
    let (inside, tokens) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(Mutex::new(Vec::new())),
    );
    let mut contenders = JoinSet::new();
    for _ in 0..4 {
        let (lock, name, inside, tokens) = (
            site.client().await,
            Arc::clone(&name),
            Arc::clone(&inside),
            Arc::clone(&tokens),
        );
        contenders.spawn(async move {
            for _ in 0..EACH {
                let guard = lock.acquire_within(&name, PATIENCE).await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
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

pub async fn dropping_a_guard_frees_the_lock<S: Site>() {
    let site = S::shared().await;
    let (one, other) = (site.client().await, site.client().await);
    let name = name("dropped");
    let since = Instant::now();
    drop(one.acquire(&name).await.unwrap());
    other
        .acquire_within(&name, PATIENCE)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert!(
        since.elapsed() < S::LEASE,
        "it was given back and did not only expire: {:?}",
        since.elapsed()
    );
}

pub async fn renewal_goes_on_until_the_last_has_left<S: Site>() {
    let site = S::shared().await;
    let (one, other) = (site.client().await, site.client().await);
    let name = name("renewed");
    let first = one.acquire(&name).await.unwrap().renewed();
    let second = first.enter().unwrap();
    sleep(S::LEASE * 3 / 2).await;
    assert!(matches!(
        refused(other.try_acquire(&name).await),
        LockError::Held { .. }
    ));
    assert_eq!(first.release().await.unwrap(), Left::StillHeld);
    assert!(matches!(
        refused(other.try_acquire(&name).await),
        LockError::Held { .. }
    ));
    assert!(!second.scope().is_lost());
    assert_eq!(second.release().await.unwrap(), Left::Released);
    other
        .acquire_within(&name, PATIENCE)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

pub async fn servers_that_are_away_are_an_error_and_their_return_is_noticed<S: Site>() {
    let mut site = S::own().await;
    let lock = site.client().await;
    let name = name("away");
    let guard = lock.acquire(&name).await.unwrap();
    let token = guard.token();
    site.break_down().await;
    let since = Instant::now();
    timeout(S::LEASE + ms(500), guard.lost())
        .await
        .expect("the loss is told at the local deadline whatever the network does");
    let error = refused(lock.acquire(&format!("{name}, another")).await);
    assert!(
        matches!(error, LockError::NoQuorum { .. }) && error.is_retryable(),
        "{error}"
    );
    assert!(!error.votes().is_empty(), "it says what is wrong: {error}");
    assert!(since.elapsed() < PATIENCE, "{:?}", since.elapsed());
    let error = timeout(PATIENCE, guard.release())
        .await
        .unwrap()
        .unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    site.mend().await;
    let guard = lock.acquire_within(&name, PATIENCE).await.unwrap();
    assert!(guard.token() > token, "{} after {token}", guard.token());
    guard.release().await.unwrap();
}

pub async fn several_locks_are_held_as_one<S: Site>() {
    let site = S::shared().await;
    let (one, other) = (site.client().await, site.client().await);
    let (a, b, c) = (name("several a"), name("several b"), name("several c"));
    let mut set = one
        .acquire_all(&[&c, &a, &b, &a], Patience::None)
        .await
        .unwrap();
    assert_eq!(
        set.sequencers()
            .iter()
            .map(|sequencer| &sequencer.name)
            .collect::<Vec<_>>(),
        [&a, &b, &c]
    );
    for name in [&a, &b, &c] {
        assert!(matches!(
            refused(other.try_acquire(name).await),
            LockError::Held { .. }
        ));
    }
    set.run(async |scopes| {
        assert_eq!(scopes.len(), 3);
        sleep(S::LEASE * 3 / 2).await;
    })
    .await
    .unwrap();
    set.release().await.unwrap();
    // All or none.
    let guard = other.acquire(&c).await.unwrap();
    let error = one
        .acquire_all(&[&a, &c], Patience::For(ms(100)))
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::Held { .. }), "{error}");
    other
        .acquire_within(&a, PATIENCE)
        .await
        .expect("it was given back")
        .release()
        .await
        .unwrap();
    guard.release().await.unwrap();
    // Two that name them in opposite orders do not wait for each other for ever.
    let both = async |lock: &Arc<dyn Lock>, names: [&str; 2]| {
        for _ in 0..3 {
            let set = lock
                .acquire_all(&names, Patience::For(PATIENCE))
                .await
                .unwrap();
            set.release().await.unwrap();
        }
    };
    tokio::join!(both(&one, [&a, &b]), both(&other, [&b, &a]));
}

pub async fn the_body_is_kept_under_the_lock_for_longer_than_a_lease<S: Site>() {
    let site = S::shared().await;
    let (one, other) = (site.client().await, site.client().await);
    let name = name("body");
    let mut guard = one.acquire(&name).await.unwrap();
    let token = guard.token();
    let answer = guard.run(async |scope| {
        sleep(S::LEASE * 3 / 2).await;
        assert!(matches!(
            refused(other.try_acquire(&name).await),
            LockError::Held { .. }
        ));
        scope.token()
    });
    assert_eq!(answer.await.unwrap(), token);
    // Lost: the body is dropped where it stands.
    let (ended, end) = oneshot::channel::<()>();
    let error = guard
        .run(async |_| {
            let _dropped_with_the_body = ended;
            let _next = take_over(site, &other, &name).await;
            std::future::pending::<()>().await
        })
        .await
        .unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    assert!(end.await.is_err());
}

pub async fn waiting_leaves_nothing_behind<S: Site>() {
    let site = S::shared().await;
    let (one, other) = (site.client().await, site.client().await);
    let name = name("cancelled");
    let guard = one.acquire(&name).await.unwrap().renewed();
    for wait in [1, 5, 20, 100] {
        assert!(timeout(ms(wait), other.acquire(&name)).await.is_err());
    }
    let since = Instant::now();
    guard.release().await.unwrap();
    let next = one.acquire_within(&name, PATIENCE).await.unwrap();
    assert!(
        since.elapsed() < S::LEASE,
        "nobody who has gone stands in the way: {:?}",
        since.elapsed()
    );
    next.release().await.unwrap();
}
