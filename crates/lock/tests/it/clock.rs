//! Servers whose wall clock jumps by a minute.

use lock::{Answer, Exclusion, Lock, Standing};
use testbed::{Clock, Redis, timeout};

use crate::support::{acquire_everywhere, count, is_lost, redlock, refused};

const MINUTE_MS: i64 = 60_000;

async fn bent(clock: &Clock) -> Redis {
    Redis::builder()
        .clock(clock)
        .await
        .unwrap()
        .start()
        .await
        .unwrap()
}

#[tokio::test]
async fn nodes_whose_clock_jumps_do_not_vote_and_nobody_gets_a_lock_that_is_held() {
    let clock = Clock::new().await.unwrap();
    let servers = [
        Redis::start().await.unwrap(),
        bent(&clock).await,
        bent(&clock).await,
    ];
    let (holder, other) = (redlock(&servers).await, redlock(&servers).await);
    let mut guard = acquire_everywhere(&holder, &servers, "clock").await;

    clock.set(MINUTE_MS).unwrap();
    // On two of three nodes the lock has expired a minute early. Who has seen their clocks before
    // does not believe them.
    let error = refused(other.try_acquire("clock").await);
    let jumped = |answer: &Answer| matches!(answer, Answer::NotVoting(Exclusion::ClockJumped { by_ms, .. }) if (59_000..61_000).contains(by_ms));
    assert!(count(&error, jumped) >= 1, "{error}");
    is_lost(guard.extend()).await;
    assert!(matches!(
        holder.status().await[1].standing,
        Standing::Excluded(Exclusion::ClockJumped { .. })
    ));

    let next = other.acquire_within("clock", timeout()).await.unwrap();
    assert!(next.token() > guard.token());
    drop(next);
    clock.set(-MINUTE_MS).unwrap();
    let error = refused(other.try_acquire("clock backwards").await);
    assert_eq!(
        count(
            &error,
            |answer| matches!(answer, Answer::NotVoting(Exclusion::ClockJumped { by_ms, .. }) if *by_ms < 0)
        ),
        2,
        "{error}"
    );
}
