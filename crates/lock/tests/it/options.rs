//! Options of a redlock: wake-ups, fair order, shared mode, renewal.

use lock::{Lock, LockError, Redlock, ReleaseOutcome, Request, Wait};
use testbed::{Redis, in_time, timeout};
use testkit_macros::tested_in;
use tokio::time::sleep;

use crate::{
    stalls::unless_stalled,
    support::{
        HOUR, LEASE, acquire_everywhere, admit, becomes, builder, five, holding, is_free, is_lost,
        is_nowhere, kept_out, ms, name, occupy, patient, raw, redlock, run, share_everywhere,
        start, token, uneven_five,
    },
};

async fn subscribers(server: &Redis, name: &str) -> usize {
    let mut numsub = redis::cmd("PUBSUB");
    numsub.arg("NUMSUB").arg(format!("{name}:released"));
    let (_, count): (String, usize) = numsub.query_async(&mut raw(server).await).await.unwrap();
    count
}

async fn share(redlock: &Redlock, name: &str) -> Result<lock::Guard, LockError> {
    redlock
        .request(Request::new(name).shared().wait(Wait::Never))
        .await
}

#[tokio::test]
async fn a_release_wakes_a_waiter_before_its_next_retry() {
    let five = five().await;
    let name = name("woken");
    let guard = patient(five).await.acquire(&name).await.unwrap();
    let slow = builder(five)
        .lease(HOUR)
        .node_timeout(timeout())
        .retry(HOUR)
        .build()
        .await
        .unwrap();
    let waiter = tokio::spawn({
        let name = name.clone();
        async move { slow.acquire(&name).await.unwrap() }
    });
    for server in five {
        becomes("the waiter is subscribed", async || {
            subscribers(server, &name).await == 1
        })
        .await;
    }
    guard.release().await.unwrap();
    // Its next retry would be after half an hour at the least.
    let next = in_time("the release waking the waiter", waiter).await;
    let next = next.unwrap();
    next.release().await.unwrap();
    for server in five {
        becomes("no waiter is subscribed any more", async || {
            subscribers(server, &name).await == 0
        })
        .await;
    }
}

#[tokio::test]
async fn a_waiter_without_notifications_retries_at_intervals() {
    let five = start(5).await;
    admit(&five).await;
    let redlock = patient(&five).await;
    for server in &five {
        // No client may publish or subscribe here.
        run(server, &["ACL", "SETUSER", "default", "resetchannels"]).await;
    }
    let name = name("not notified");
    let guard = redlock.acquire(&name).await.unwrap();
    let other = redlock.clone();
    let waiter = tokio::spawn({
        let name = name.clone();
        async move { other.acquire(&name).await.unwrap() }
    });
    sleep(ms(200)).await;
    guard.release().await.unwrap();
    in_time("a retry", waiter)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_queued_waiter_that_gives_up_leaves_the_queue_immediately() {
    let five = five().await;
    // With this timeout, a waiter that stayed in the queue would block it for the whole test.
    let fair = async || {
        builder(five)
            .lease(HOUR)
            .node_timeout(timeout())
            .fair(true)
            .waiter_timeout(HOUR)
            .build()
            .await
            .unwrap()
    };
    let (first, second) = (fair().await, fair().await);
    let name = name("leaves the queue");
    let guard = patient(five).await.acquire(&name).await.unwrap();
    kept_out(first.acquire_within(&name, ms(300))).await;
    let waiter = tokio::spawn({
        let name = name.clone();
        async move { second.acquire(&name).await.unwrap() }
    });
    guard.release().await.unwrap();
    in_time("the turn of a waiter with no client ahead", waiter)
        .await
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

#[tested_in(unless_stalled(LEASE))]
async fn a_shared_lock_ends_unless_it_is_extended() {
    let five = five().await;
    let redlock = redlock(five).await;
    let name = name("shares");
    let short = share(&redlock, &name).await.unwrap();
    let mut long = share(&redlock, &name).await.unwrap();
    long.run(async |_| short.lost().await).await.unwrap();
    is_lost(short.release()).await;
    kept_out(redlock.try_acquire(&name)).await;
    long.release().await.unwrap();
    is_nowhere(five, &name).await;
    is_free(redlock.try_acquire(&name)).await;
}

#[tokio::test]
async fn shared_locks_and_locks_of_other_libraries_exclude_each_other() {
    let five = &start(5).await[..];
    admit(five).await;
    let redlock = patient(five).await;
    let name = name("foreign");
    for server in &five[..3] {
        occupy(server, &name, HOUR).await;
    }
    kept_out(share(&redlock, &name)).await;
    becomes("only the other library's locks are left", async || {
        holding(five, &name).await == 3
    })
    .await;
    for server in &five[..3] {
        run(server, &["DEL", &name]).await;
    }
    // Above the tokens that the other two nodes accepted when there was no quorum.
    let guard = share_everywhere(&redlock, five, &name).await;
    for server in five {
        let set: Option<String> = redis::cmd("SET")
            .arg(&name)
            .arg("x")
            .arg("NX")
            .query_async(&mut raw(server).await)
            .await
            .unwrap();
        assert_eq!(set, None, "another library cannot acquire it");
    }
    guard.release().await.unwrap();
    is_nowhere(five, &name).await;
}

#[tested_in(unless_stalled(LEASE))]
async fn a_shared_lock_that_the_nodes_have_lost_cannot_be_extended() {
    let five = five().await;
    let redlock = redlock(five).await;
    let name = name("lost share");
    let mut guard = share_everywhere(&redlock, five, &name).await;
    for server in five {
        run(server, &["DEL", &name]).await;
    }
    let error = guard.extend().await.unwrap_err();
    assert!(
        matches!(error, LockError::Lost { .. }),
        "another owner may have held it exclusively since: {error}"
    );
    assert!(guard.is_lost());
}

#[tested_in(unless_stalled(LEASE))]
async fn a_renewed_lock_reports_its_loss_and_cannot_be_entered_again() {
    let five = five().await;
    let redlock = redlock(five).await;
    let name = name("renewed and lost");
    let held = redlock.acquire(&name).await.unwrap().renewed();
    let again = held.enter().unwrap();
    let scope = held.scope().clone();
    for server in five {
        occupy(server, &name, HOUR).await;
    }
    in_time("the loss, at its deadline at the latest", scope.lost()).await;
    let error = held.enter().unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    assert_eq!(
        held.release().await.unwrap(),
        ReleaseOutcome::StillHeld,
        "the other handle is still open"
    );
    is_lost(again.release()).await;
    assert_eq!(
        holding(five, &name).await,
        5,
        "the lock of the other owner is untouched"
    );
}

#[tokio::test]
async fn a_client_learns_accepted_tokens_from_late_answers() {
    let five = uneven_five().await;
    let redlock = patient(five).await;
    let name = name("late answers");
    let guard = acquire_everywhere(&redlock, five, &name).await;
    guard.release().await.unwrap();
    is_nowhere(five, &name).await;
    // Two nodes know a later token; the other three are a quorum without them.
    for server in &five[..2] {
        run(server, &["SET", &format!("{name}:fence"), "1000000"]).await;
    }
    let guard = redlock.acquire(&name).await.unwrap();
    becomes("a quorum has the lock", async || {
        holding(five, &name).await >= 3
    })
    .await;
    guard.release().await.unwrap();
    is_nowhere(five, &name).await;
    let guard = redlock.acquire(&name).await.unwrap();
    assert!(guard.token() > token(1_000_000), "{}", guard.token());
    becomes("all nodes have the lock", async || {
        holding(five, &name).await == 5
    })
    .await;
    guard.release().await.unwrap();
}
