//! What a holder learns of its lock, and what becomes of the lock.

use futures::FutureExt;
use lock::{Lock, LockError};
use testbed::{in_time, timeout};
use testkit_macros::tested_in;
use tokio::{sync::oneshot, time::sleep};

use crate::{
    stalls::unless_stalled,
    support::{
        HOUR, LEASE, acquire_everywhere, admit, becomes, builder, deadline, five, get,
        is_everywhere, is_lost, is_nowhere, ms, name, occupy, patient, redlock, run, start,
    },
};

#[tokio::test]
async fn extending_sets_the_lease_anew_and_never_adds() {
    let five = five().await;
    let mut guard = patient(five).await.acquire(&name("extend")).await.unwrap();
    let token = guard.token();
    for _ in 0..3 {
        sleep(ms(100)).await;
        let before = deadline(&guard);
        guard.extend().await.unwrap();
        assert!(guard.validity() <= HOUR, "{:?}", guard.validity());
        let later = deadline(&guard) - before;
        assert!(later > ms(50), "as if it had been acquired now: {later:?}");
    }
    assert_eq!(guard.token(), token);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn after_its_end_a_lease_is_neither_extended_nor_released() {
    let five = five().await;
    let redlock = builder(five)
        .lease(ms(300))
        .node_timeout(ms(200))
        .longest_lease(ms(1500))
        .build()
        .await
        .unwrap();
    let mut guard = redlock
        .acquire_within(&name("expired"), timeout())
        .await
        .unwrap();
    guard.lost().await;
    is_lost(guard.extend()).await;
    is_lost(guard.release()).await;
}

#[tokio::test]
async fn who_releases_after_somebody_else_took_it_is_told_and_does_no_harm() {
    let five = five().await;
    let name = name("taken over");
    let guard = acquire_everywhere(&patient(five).await, five, &name).await;
    for server in &five[..3] {
        occupy(server, &name, HOUR).await;
    }
    is_lost(guard.release()).await;
    for server in &five[..3] {
        assert_eq!(get(server, &name).await.unwrap(), "another owner");
    }
    for server in &five[3..] {
        becomes("our part is gone", async || {
            get(server, &name).await.is_none()
        })
        .await;
    }
}

#[tokio::test]
async fn extending_gives_the_lock_back_to_nodes_that_lost_it() {
    let five = five().await;
    let name = name("heal");
    let mut guard = acquire_everywhere(&patient(five).await, five, &name).await;
    for server in &five[..3] {
        run(server, &["DEL", &name]).await;
    }
    guard.extend().await.unwrap();
    is_everywhere(five, &name).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn extending_does_not_give_it_back_after_somebody_else_had_it() {
    let five = five().await;
    let name = name("superseded");
    let mut guard = acquire_everywhere(&patient(five).await, five, &name).await;
    for server in five {
        run(server, &["DEL", &name]).await;
    }
    let other = patient(five).await.acquire(&name).await.unwrap();
    assert!(other.token() > guard.token());
    other.release().await.unwrap();
    is_lost(guard.extend()).await;
    assert!(guard.is_lost() && guard.cancellation().is_cancelled());
    is_nowhere(five, &name).await;
}

#[tokio::test]
async fn extending_waits_for_a_slow_node_also_when_another_has_had_somebody_else() {
    let three = start(3).await;
    admit(&three).await;
    let mut guard = acquire_everywhere(&patient(&three).await, &three, "slow").await;
    // What a contender leaves behind that did not get a quorum.
    run(&three[0], &["DEL", "slow"]).await;
    run(&three[0], &["SET", "slow:fence", "1000000"]).await;
    three[1].pause().await.unwrap();
    let (extended, ()) = tokio::join!(guard.extend(), async {
        sleep(ms(100)).await;
        three[1].resume().await.unwrap();
    });
    extended.expect("two of three have it, each within its time");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_loss_is_told_at_the_deadline_and_at_once_to_who_asks_later() {
    let five = five().await;
    // The end of any other time than the lease would be an hour away.
    let redlock = builder(five)
        .lease(ms(300))
        .node_timeout(ms(200))
        .longest_lease(HOUR)
        .build()
        .await
        .unwrap();
    let guard = redlock
        .acquire_within(&name("deadline"), timeout())
        .await
        .unwrap();
    let (scope, cancellation) = (guard.scope(), guard.cancellation());
    in_time("the loss", guard.lost()).await;
    assert!(guard.validity().is_zero());
    in_time("the cancellation", cancellation.cancelled()).await;
    scope.lost().now_or_never().expect("at once");
}

#[tested_in(unless_stalled(LEASE))]
async fn the_body_is_kept_under_the_lock_for_longer_than_a_lease() {
    let redlock = redlock(five().await).await;
    let mut guard = redlock.acquire(&name("kept")).await.unwrap();
    let token = guard.token();
    let seen = guard
        .run(async |scope| {
            sleep(ms(2000)).await;
            assert!(!scope.is_lost());
            scope.token()
        })
        .await
        .unwrap();
    assert_eq!(seen, token);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn the_body_is_dropped_where_it_stands_when_the_lock_is_lost() {
    let five = start(5).await;
    let redlock = redlock(&five).await;
    let mut guard = redlock.acquire("body").await.unwrap();
    let (alive, dropped) = oneshot::channel::<()>();
    for server in &five[..3] {
        server.pause().await.unwrap();
    }
    let body = guard.run(async |_| {
        let _alive = alive;
        std::future::pending::<()>().await;
    });
    // They do not answer before that.
    let result = in_time("the end of the body", body).await;
    assert!(matches!(result, Err(LockError::Lost { .. })), "{result:?}");
    assert!(dropped.await.is_err(), "the body does not exist any more");
    for server in &five[..3] {
        server.resume().await.unwrap();
    }
}

#[tokio::test]
async fn dropping_a_guard_frees_the_lock() {
    let five = five().await;
    let name = name("dropped");
    let guard = patient(five).await.acquire(&name).await.unwrap();
    let cancellation = guard.cancellation();
    drop(guard);
    assert!(cancellation.is_cancelled());
    is_nowhere(five, &name).await;
}

#[tokio::test]
async fn a_release_that_nobody_waits_for_frees_the_lock() {
    let five = five().await;
    let redlock = patient(five).await;
    for step in 0..10 {
        let name = name("unwaited");
        let guard = redlock.acquire(&name).await.unwrap();
        let wait = std::time::Duration::from_micros(step * 30);
        let _ = tokio::time::timeout(wait, guard.release()).await;
        is_nowhere(five, &name).await;
    }
}
