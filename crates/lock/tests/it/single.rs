//! One Redis server: its token counter, re-entrance, and exclusion with Redisson.

use lock::{Lock, LockError, RedisLock, RedisLockBuilder};
use redis::Script;
use testbed::{Redis, in_time, timeout};

use crate::support::{HOUR, becomes, get, raw, run, token};

const COUNTER: &str = "lock:node:counter";

/// A lease that never ends during a test, and time for a slow server.
fn builder(server: &Redis) -> RedisLockBuilder {
    RedisLockBuilder::new(server.url())
        .lease(HOUR)
        .server_timeout(timeout())
}

async fn start() -> (Redis, RedisLock) {
    let server = Redis::start().await.unwrap();
    let lock = builder(&server).build().unwrap();
    (server, lock)
}

#[tokio::test]
async fn tokens_are_consecutive_also_above_2_to_the_53() {
    let (server, lock) = start().await;
    assert_eq!(lock.acquire("a").await.unwrap().token(), token(1));
    assert_eq!(lock.acquire("b").await.unwrap().token(), token(2));
    lock.observe("c", token(1 << 53)).unwrap();
    for number in 1..4 {
        let guard = lock.acquire("c").await.unwrap();
        assert_eq!(guard.token(), token((1 << 53) + number));
        assert_eq!(
            get(&server, "c:fence").await.unwrap(),
            guard.token().to_string()
        );
        guard.release().await.unwrap();
    }
    lock.observe("d", token(7)).unwrap();
    assert_eq!(
        lock.acquire("d").await.unwrap().token(),
        token((1 << 53) + 4),
        "an observed token never lowers the next one"
    );
}

#[tokio::test]
async fn after_the_last_token_there_is_no_lock() {
    let (server, lock) = start().await;
    run(&server, &["SET", COUNTER, &(i64::MAX - 1).to_string()]).await;
    let guard = lock.acquire("last").await.unwrap();
    assert_eq!(guard.token().get(), i64::MAX);
    guard.release().await.unwrap();
    for lock in [lock.clone(), lock.reentrant()] {
        let error = lock
            .acquire("last")
            .await
            .expect_err("there is no token left");
        assert!(
            matches!(error, LockError::NoTokenLeft { .. }) && !error.is_retryable(),
            "{error}"
        );
    }
    assert_eq!(get(&server, "last").await, None);
}

#[tokio::test]
async fn only_the_same_handle_can_enter_a_lock_again() {
    let (server, lock) = start().await;
    let (handle, other) = (lock.reentrant(), lock.reentrant());
    let mut first = handle.try_acquire("again").await.unwrap();
    let second = handle.clone().try_acquire("again").await.unwrap();
    assert_eq!(
        first.token(),
        second.token(),
        "both entries belong to one acquisition"
    );
    for other_handle in [&other, &lock] {
        let error = other_handle
            .try_acquire("again")
            .await
            .expect_err("another handle cannot enter");
        assert!(matches!(error, LockError::Held { .. }), "{error}");
    }
    second.release().await.unwrap();
    assert!(
        other.try_acquire("again").await.is_err(),
        "one entry is still held"
    );
    first.extend().await.unwrap();
    let tenure = first.token();
    first.release().await.unwrap();
    let next = other.try_acquire("again").await.unwrap();
    assert!(next.token() > tenure);
    next.release().await.unwrap();
    assert_eq!(get(&server, "again:fence").await, None);
}

#[tokio::test]
async fn redlock_tokens_rise_although_a_node_also_serves_single_server_locks() {
    let three = crate::support::start(3).await;
    crate::support::admit(&three).await;
    let redlock = crate::support::patient(&three).await;
    let single = builder(&three[1]).build().unwrap();
    for (lock, above) in [(single.clone(), 1000), (single.reentrant(), 2000)] {
        redlock.observe("both", token(above)).unwrap();
        let before = crate::support::acquire_everywhere(&redlock, &three, "both").await;
        let last = before.token();
        before.release().await.unwrap();
        crate::support::is_nowhere(&three, "both").await;
        let between = lock.acquire("both").await.unwrap();
        assert!(between.token() > last, "{} after {last}", between.token());
        between.release().await.unwrap();
        let fence = get(&three[1], "both:fence").await;
        assert!(
            fence
                .as_ref()
                .is_none_or(|fence| fence.parse::<i64>().unwrap() >= last.get()),
            "{fence:?} after {last}"
        );
    }
}

#[tokio::test]
async fn plain_and_reentrant_locks_exclude_each_other() {
    let (_server, lock) = start().await;
    let handle = lock.reentrant();
    for (one, other) in [(&lock, &handle), (&handle, &lock)] {
        let guard = one.try_acquire("kinds").await.unwrap();
        let error = other
            .try_acquire("kinds")
            .await
            .expect_err("the lock is held");
        assert!(matches!(error, LockError::Held { .. }), "{error}");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_release_wakes_a_waiter_before_its_next_retry() {
    let server = Redis::start().await.unwrap();
    // Without the release, its next attempt comes after half an hour at the earliest.
    let builder = builder(&server).retry(HOUR);
    for lock in [
        builder.clone().build().unwrap(),
        builder.clone().build().unwrap().reentrant(),
    ] {
        let guard = lock.acquire("woken").await.unwrap();
        let waiter = tokio::spawn({
            // A separate handle, because the same re-entrant handle would be admitted.
            let other = builder.clone().build().unwrap();
            async move { other.acquire("woken").await.unwrap() }
        });
        let subscribers = async || -> usize {
            let mut numsub = redis::cmd("PUBSUB");
            numsub.arg("NUMSUB").arg("woken:released");
            let (_, count): (String, usize) =
                numsub.query_async(&mut raw(&server).await).await.unwrap();
            count
        };
        becomes("the waiter is subscribed", async || {
            subscribers().await == 1
        })
        .await;
        guard.release().await.unwrap();
        in_time("the release waking the waiter", waiter)
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        becomes("no waiter is subscribed any more", async || {
            subscribers().await == 0
        })
        .await;
    }
}

/// The scripts of RedissonLock, call for call (redisson/redisson, RedissonLock.java:
/// tryLockInnerAsync, unlockInnerAsync), rewritten.
fn redisson_lock() -> Script {
    Script::new(
        "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
           redis.call('hincrby', KEYS[1], ARGV[2], 1)
           redis.call('pexpire', KEYS[1], ARGV[1])
           return -1
         end
         return redis.call('pttl', KEYS[1])",
    )
}

fn redisson_unlock() -> Script {
    Script::new(
        "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return -1 end
         if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then return 0 end
         redis.call('del', KEYS[1])
         return 1",
    )
}

#[tokio::test]
async fn redisson_locks_and_reentrant_locks_exclude_each_other() {
    const THREAD: &str = "6c1b5ec0-8a4e-4f56-9c38-d13fd3b0d2a1:1";
    let (server, lock) = start().await;
    let (handle, mut connection) = (lock.reentrant(), raw(&server).await);
    let (locking, unlocking) = (redisson_lock(), redisson_unlock());
    let mut take = async || -> i64 {
        locking
            .key("theirs")
            .arg(HOUR.as_millis() as u64)
            .arg(THREAD)
            .invoke_async(&mut connection)
            .await
            .unwrap()
    };
    assert_eq!(take().await, -1);
    assert_eq!(take().await, -1, "Redisson has entered twice");
    for lock in [&handle, &lock] {
        let error = lock
            .try_acquire("theirs")
            .await
            .expect_err("Redisson holds the lock");
        assert!(matches!(error, LockError::Held { .. }), "{error}");
    }
    let mut connection = raw(&server).await;
    for left in [0, 1] {
        let freed: i64 = unlocking
            .key("theirs")
            .arg(THREAD)
            .invoke_async(&mut connection)
            .await
            .unwrap();
        assert_eq!(freed, left);
    }
    let guard = handle.try_acquire("theirs").await.unwrap();
    assert!(
        take().await > 0,
        "Redisson gets the time to live of our lock"
    );
    let freed: i64 = unlocking
        .key("theirs")
        .arg(THREAD)
        .invoke_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(freed, -1, "Redisson cannot release our lock");
    guard.release().await.unwrap();
    assert_eq!(take().await, -1);
}
