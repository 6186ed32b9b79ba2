//! What a holder learns of its lock, and what becomes of the lock.

use std::time::Instant;

use lock::{Lock, LockError};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use crate::support::{
    acquire_everywhere, becomes, builder, five, get, is_everywhere, is_nowhere, ms, name, occupy,
    patient, redlock, run, start,
};

#[tokio::test]
async fn extending_sets_the_lease_anew_and_never_adds() {
    let five = five().await;
    let mut guard = redlock(five).await.acquire(&name("extend")).await.unwrap();
    let token = guard.token();
    for _ in 0..3 {
        guard.extend().await.unwrap();
        assert!(guard.validity() <= ms(1500), "{:?}", guard.validity());
        assert!(guard.validity() > ms(500), "{:?}", guard.validity());
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
    let mut guard = redlock.acquire(&name("expired")).await.unwrap();
    guard.lost().await;
    let error = guard.extend().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
}

#[tokio::test]
async fn who_releases_after_somebody_else_took_it_is_told_and_does_no_harm() {
    let five = five().await;
    let name = name("taken over");
    let guard = acquire_everywhere(&patient(five).await, five, &name).await;
    for server in &five[..3] {
        occupy(server, &name, ms(60_000)).await;
    }
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
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
    let other = redlock(five).await.acquire(&name).await.unwrap();
    assert!(other.token() > guard.token());
    other.release().await.unwrap();
    let error = guard.extend().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    assert!(guard.is_lost() && guard.cancellation().is_cancelled());
    is_nowhere(five, &name).await;
}

#[tokio::test]
async fn extending_waits_for_a_slow_node_also_when_another_has_had_somebody_else() {
    let three = start(3).await;
    let mut guard = acquire_everywhere(&redlock(&three).await, &three, "slow").await;
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
    let redlock = builder(five)
        .lease(ms(300))
        .node_timeout(ms(200))
        .longest_lease(ms(1500))
        .build()
        .await
        .unwrap();
    let since = Instant::now();
    let guard = redlock.acquire(&name("deadline")).await.unwrap();
    let (scope, cancellation) = (guard.scope(), guard.cancellation());
    guard.lost().await;
    assert!(since.elapsed() < ms(1300), "{:?}", since.elapsed());
    assert!(guard.validity().is_zero());
    cancellation.cancelled().await;
    timeout(ms(0), scope.lost()).await.expect("at once");
}

#[tokio::test]
async fn the_body_is_kept_under_the_lock_for_longer_than_a_lease() {
    let five = five().await;
    let redlock = builder(five)
        .lease(ms(400))
        .node_timeout(ms(200))
        .longest_lease(ms(1500))
        .build()
        .await
        .unwrap();
    let mut guard = redlock.acquire(&name("kept")).await.unwrap();
    let token = guard.token();
    let seen = guard
        .run(async |scope| {
            sleep(ms(1000)).await;
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
    let since = Instant::now();
    let result = guard
        .run(async |_| {
            let _alive = alive;
            std::future::pending::<()>().await;
        })
        .await;
    assert!(matches!(result, Err(LockError::Lost { .. })), "{result:?}");
    assert!(since.elapsed() < ms(2500), "{:?}", since.elapsed());
    assert!(dropped.await.is_err(), "the body does not exist any more");
    for server in &five[..3] {
        server.resume().await.unwrap();
    }
}

#[tokio::test]
async fn dropping_a_guard_frees_the_lock() {
    let five = five().await;
    let name = name("dropped");
    let guard = redlock(five).await.acquire(&name).await.unwrap();
    let cancellation = guard.cancellation();
    drop(guard);
    assert!(cancellation.is_cancelled());
    is_nowhere(five, &name).await;
}

#[tokio::test]
async fn a_release_that_nobody_waits_for_frees_the_lock() {
    let five = five().await;
    let redlock = redlock(five).await;
    for step in 0..10 {
        let name = name("unwaited");
        let guard = redlock.acquire(&name).await.unwrap();
        let _ = timeout(std::time::Duration::from_micros(step * 30), guard.release()).await;
        is_nowhere(five, &name).await;
    }
}
