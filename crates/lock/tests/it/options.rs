//! Waking, waiting in order, sharing: what a user can ask for beyond a lock.

use std::time::{Duration, Instant};

use lock::{Left, Lock, LockError, Patience, Redlock, Request};
use testbed::Redis;
use tokio::time::{sleep, timeout};

use crate::site::{
    acquire_everywhere, becomes, builder, five, holding, is_nowhere, ms, name, occupy, patient,
    raw, redlock, refused, run, start, token, uneven_five,
};

async fn subscribers(server: &Redis, name: &str) -> usize {
    let mut numsub = redis::cmd("PUBSUB");
    numsub.arg("NUMSUB").arg(format!("{name}:released"));
    let (_, count): (String, usize) = numsub.query_async(&mut raw(server).await).await.unwrap();
    count
}

async fn share(redlock: &Redlock, name: &str) -> Result<lock::Guard, LockError> {
    redlock
        .request(Request::new(name).shared().patience(Patience::None))
        .await
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_release_and_does_not_only_ask_now_and_then() {
    let five = five().await;
    let name = name("woken");
    let guard = patient(five).await.acquire(&name).await.unwrap();
    let slow = builder(five)
        .lease(ms(20_000))
        .retry(ms(15_000))
        .build()
        .await
        .unwrap();
    let waiter = tokio::spawn({
        let name = name.clone();
        async move { slow.acquire(&name).await.unwrap() }
    });
    for server in five {
        becomes("it listens", async || subscribers(server, &name).await == 1).await;
    }
    let since = Instant::now();
    guard.release().await.unwrap();
    let next = timeout(ms(5000), waiter)
        .await
        .expect("it is woken")
        .unwrap();
    assert!(
        since.elapsed() < ms(5000),
        "by itself it would have asked after seven seconds at the least"
    );
    next.release().await.unwrap();
    for server in five {
        becomes("nobody listens any more", async || {
            subscribers(server, &name).await == 0
        })
        .await;
    }
}

#[tokio::test]
async fn a_waiter_that_is_not_told_asks_by_itself() {
    let five = start(5).await;
    let redlock = redlock(&five).await;
    for server in &five {
        // Nobody may publish or subscribe here.
        run(server, &["ACL", "SETUSER", "default", "resetchannels"]).await;
    }
    let name = name("not told");
    let guard = redlock.acquire(&name).await.unwrap();
    let other = redlock.clone();
    let waiter = tokio::spawn({
        let name = name.clone();
        async move { other.acquire(&name).await.unwrap() }
    });
    sleep(ms(200)).await;
    guard.release().await.unwrap();
    timeout(ms(5000), waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_waiter_in_the_queue_that_gives_up_makes_room_at_once() {
    let five = five().await;
    // Whoever is taken for dead would be waited for longer than this test lasts.
    let fair = async || {
        builder(five)
            .lease(ms(20_000))
            .fair(true)
            .waiter_timeout(Duration::from_secs(60))
            .build()
            .await
            .unwrap()
    };
    let (first, second) = (fair().await, fair().await);
    let name = name("gives up its place");
    let guard = patient(five).await.acquire(&name).await.unwrap();
    let error = refused(first.acquire_within(&name, ms(300)).await);
    assert!(matches!(error, LockError::Held { .. }), "{error}");
    let waiter = tokio::spawn({
        let name = name.clone();
        async move { second.acquire(&name).await.unwrap() }
    });
    guard.release().await.unwrap();
    timeout(ms(10_000), waiter)
        .await
        .expect("nobody is in front")
        .unwrap()
        .release()
        .await
        .unwrap();
    for server in five {
        let queue = format!("{name}:queue");
        becomes("the queue is gone", async || {
            redis::cmd("EXISTS")
                .arg(&queue)
                .query_async::<u32>(&mut raw(server).await)
                .await
                .unwrap()
                == 0
        })
        .await;
    }
}

#[tokio::test]
async fn a_share_that_is_not_extended_ends_and_one_that_is_goes_on() {
    let five = five().await;
    let redlock = redlock(five).await;
    let name = name("shares");
    let short = share(&redlock, &name).await.unwrap();
    let mut long = share(&redlock, &name).await.unwrap();
    long.run(async |_| short.lost().await).await.unwrap();
    let error = short.release().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    assert!(matches!(
        refused(redlock.try_acquire(&name).await),
        LockError::Held { .. }
    ));
    long.release().await.unwrap();
    is_nowhere(five, &name).await;
    redlock
        .try_acquire(&name)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_share_is_respected_by_others_and_respects_them() {
    let five = &start(5).await[..];
    let redlock = redlock(five).await;
    let name = name("foreign");
    for server in &five[..3] {
        occupy(server, &name, Duration::from_secs(60)).await;
    }
    let error = refused(share(&redlock, &name).await);
    assert!(matches!(error, LockError::Held { .. }), "{error}");
    becomes("only the foreign locks are left", async || {
        holding(five, &name).await == 3
    })
    .await;
    for server in &five[..3] {
        run(server, &["DEL", &name]).await;
    }
    // Above what the other two have accepted when there was no quorum.
    let marks = redlock
        .status()
        .await
        .into_iter()
        .filter_map(|node| node.high_water)
        .max();
    redlock.observe(&name, marks.unwrap()).unwrap();
    let guard = share(&redlock, &name).await.unwrap();
    becomes("all have it", async || holding(five, &name).await == 5).await;
    for server in five {
        let set: Option<String> = redis::cmd("SET")
            .arg(&name)
            .arg("x")
            .arg("NX")
            .query_async(&mut raw(server).await)
            .await
            .unwrap();
        assert_eq!(set, None, "no other library can take it");
    }
    guard.release().await.unwrap();
    is_nowhere(five, &name).await;
}

#[tokio::test]
async fn a_share_that_the_nodes_have_lost_does_not_come_back() {
    let five = five().await;
    let redlock = redlock(five).await;
    let name = name("lost share");
    let mut guard = share(&redlock, &name).await.unwrap();
    becomes("all have it", async || holding(five, &name).await == 5).await;
    for server in five {
        run(server, &["DEL", &name]).await;
    }
    let error = guard.extend().await.unwrap_err();
    assert!(
        matches!(error, LockError::Lost { .. }),
        "somebody may have had it alone since: {error}"
    );
    assert!(guard.is_lost());
}

#[tokio::test]
async fn a_lock_that_renews_itself_tells_of_its_loss_and_is_not_entered_again() {
    let five = five().await;
    let redlock = redlock(five).await;
    let name = name("renewed and lost");
    let held = redlock.acquire(&name).await.unwrap().renewed();
    let again = held.enter().unwrap();
    let scope = held.scope().clone();
    for server in five {
        run(server, &["SET", &name, "somebody else", "PX", "60000"]).await;
    }
    timeout(ms(1500), scope.lost())
        .await
        .expect("at its deadline at the latest");
    let error = held.enter().unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    assert_eq!(
        held.release().await.unwrap(),
        Left::StillHeld,
        "by the other handle, as far as handles go"
    );
    let error = again.release().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    assert_eq!(
        holding(five, &name).await,
        5,
        "the other's lock is untouched"
    );
}

#[tokio::test]
async fn a_client_learns_from_late_answers_what_nodes_have_accepted() {
    let five = uneven_five().await;
    let redlock = patient(five).await;
    let name = name("late answers");
    let guard = acquire_everywhere(&redlock, five, &name).await;
    guard.release().await.unwrap();
    is_nowhere(five, &name).await;
    // Two nodes know of a later token, and are answered for by the other three.
    for server in &five[..2] {
        run(server, &["SET", &format!("{name}:fence"), "1000000"]).await;
    }
    let guard = redlock.acquire(&name).await.unwrap();
    becomes("its votes are in", async || holding(five, &name).await >= 3).await;
    guard.release().await.unwrap();
    is_nowhere(five, &name).await;
    let guard = redlock.acquire(&name).await.unwrap();
    assert!(guard.token() > token(1_000_000), "{}", guard.token());
    becomes("all have it", async || holding(five, &name).await == 5).await;
    guard.release().await.unwrap();
}
