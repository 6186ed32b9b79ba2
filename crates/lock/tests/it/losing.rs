//! A lock that nodes lose or give to another client while it is held.

use std::time::Duration;

use futures::FutureExt;
use lock::{Answer, Exclusion, Lock, LockError, Standing};
use testbed::{AppendFsync, Redis, in_time, timeout};
use testkit_macros::tested_in;

use crate::{
    stalls::unless_stalled,
    support::{
        HOUR, acquire_everywhere, admit, becomes, builder, count, five, get, holding, is_held,
        is_nowhere, ms, name, occupy, patient, pttl, redlock, refused, run, start, uneven_five,
    },
};

/// Its second holder has it still: unlike after a release, the nodes say so.
#[tokio::test]
async fn extending_fails_when_somebody_else_has_it_and_takes_nothing_back() {
    let five = uneven_five().await;
    let name = name("another has it");
    let mut guard = acquire_everywhere(&patient(five).await, five, &name).await;
    // Far longer than the lease of the guard, which must not replace it.
    let theirs = 24 * HOUR;
    for server in &five[..3] {
        run(server, &["DEL", &name]).await;
        occupy(server, &name, theirs).await;
    }
    let error = guard.extend().await.unwrap_err();
    assert!(
        matches!(error, LockError::Lost { .. }) && !error.is_retryable(),
        "{error}"
    );
    assert_eq!(count(&error, is_held), 3, "{error}");
    guard.lost().now_or_never().expect("at once");
    for server in &five[..3] {
        assert_eq!(get(server, &name).await.unwrap(), "another owner");
        let left_ms = u128::try_from(pttl(server, &name).await).unwrap();
        assert!(left_ms > HOUR.as_millis(), "its lease is its own");
    }
    let error = guard.extend().await.unwrap_err();
    assert!(
        matches!(&error, LockError::Lost { votes } if votes.is_empty()),
        "no node is asked again: {error}"
    );
    drop(guard);
    becomes("the rest is given back", async || {
        holding(&five[3..], &name).await == 0
    })
    .await;
}

#[tokio::test]
async fn extending_after_the_end_does_not_bring_the_lock_back() {
    let five = five().await;
    let name = name("over");
    let redlock = builder(five)
        .lease(ms(300))
        .node_timeout(ms(200))
        .longest_lease(ms(1500))
        .build()
        .await
        .unwrap();
    let mut guard = redlock.acquire_within(&name, timeout()).await.unwrap();
    guard.lost().await;
    is_nowhere(five, &name).await;
    assert!(matches!(guard.extend().await, Err(LockError::Lost { .. })));
    assert_eq!(holding(five, &name).await, 0);
    assert!(matches!(guard.release().await, Err(LockError::Lost { .. })));
}

#[tokio::test]
async fn on_the_nodes_extending_sets_the_lease_anew_and_never_adds() {
    let five = uneven_five().await;
    let name = name("anew");
    let mut guard = acquire_everywhere(&patient(five).await, five, &name).await;
    let lease_ms = i64::try_from(HOUR.as_millis()).unwrap();
    for _ in 0..3 {
        // As if most of the lease were over, on a quorum.
        for server in &five[..3] {
            run(server, &["PEXPIRE", &name, &(lease_ms / 2).to_string()]).await;
        }
        guard.extend().await.unwrap();
        for server in &five[..3] {
            becomes("the lease is new", async || {
                pttl(server, &name).await > lease_ms / 2
            })
            .await;
            assert!(
                pttl(server, &name).await <= lease_ms,
                "three leases are not longer than one"
            );
        }
    }
    guard.release().await.unwrap();
}

/// Also by one who does not ask, but lets it be renewed.
#[tokio::test]
async fn a_body_is_stopped_when_the_nodes_are_flushed() {
    let five = start(5).await;
    admit(&five).await;
    let redlock = builder(&five).lease(ms(6000)).build().await.unwrap();
    let mut guard = acquire_everywhere(&redlock, &five, "flushed").await;
    for server in &five {
        run(server, &["FLUSHALL"]).await;
    }
    let body = guard.run(async |_| std::future::pending::<()>().await);
    let error = in_time("the end of the body", body).await.unwrap_err();
    assert!(matches!(error, LockError::Lost { .. }), "{error}");
    let forgot = |answer: &Answer| matches!(answer, Answer::NotVoting(Exclusion::Forgot { .. }));
    assert!(
        count(&error, forgot) >= 3,
        "by what the nodes said, not by the deadline: {error}"
    );
}

/// The whole point of a quorum that remembers: with the vote of the one that forgot, a second
/// client would have two of three.
#[tested_in(unless_stalled(ms(8000)))]
async fn a_node_that_was_wiped_and_restarted_does_not_give_away_a_lock_that_is_held() {
    let mut three = vec![Redis::start().await.unwrap()];
    for _ in 0..2 {
        three.push(
            Redis::builder()
                .appendfsync(AppendFsync::No)
                .start()
                .await
                .unwrap(),
        );
    }
    admit(&three).await;
    let holder = builder(&three).lease(ms(8000)).build().await.unwrap();
    let other = builder(&three).lease(ms(8000)).build().await.unwrap();
    let guard = acquire_everywhere(&holder, &three, "wiped").await;
    // The holder has two votes, as if the third had never reached its node; now one of its nodes
    // forgets.
    run(&three[2], &["DEL", "wiped", "wiped:fence"]).await;
    three[1].restart().await.unwrap();
    assert_eq!(holding(&three, "wiped").await, 1);
    // At first it has no connection; it shall be asked, and refuse.
    let mut said_no = 0;
    while said_no < 3 {
        let error = refused(other.try_acquire("wiped").await);
        assert!(!guard.is_lost(), "the machine is too slow for this test");
        assert!(
            matches!(error, LockError::Held { .. } | LockError::NoQuorum { .. }),
            "{error}"
        );
        said_no += count(&error, |answer| {
            matches!(answer, Answer::NotVoting(Exclusion::Forgot { .. }))
        });
    }
    let statuses = other.status().await;
    assert!(
        matches!(
            statuses[1].standing,
            Standing::Excluded(Exclusion::Forgot { .. })
        ),
        "{statuses:?}"
    );
    let next = other.acquire_within("wiped", timeout()).await.unwrap();
    assert!(guard.is_lost(), "two have it");
    assert!(
        next.token() > guard.token(),
        "{} after {}",
        next.token(),
        guard.token()
    );
    next.release().await.unwrap();
}

#[tokio::test]
async fn what_is_refused_is_named_with_what_was_expected() {
    let redlock = redlock(five().await).await;
    let said = async |name: &str| redlock.try_acquire(name).await.unwrap_err().to_string();
    assert_eq!(said("").await, "the name of a lock must not be empty");
    assert_eq!(
        said(&"x".repeat(10_000)).await,
        "the name of a lock is 10000 bytes long; at most 1024 are allowed"
    );
    assert!(
        said("item:fence")
            .await
            .contains("\"item:fence\" is not allowed as the name of a lock")
    );
    let one = || lock::RedlockBuilder::new(["redis://127.0.0.1:1"]);
    let refused = async |builder: lock::RedlockBuilder| {
        builder.build().await.map(drop).unwrap_err().to_string()
    };
    assert_eq!(
        refused(one().lease(Duration::ZERO)).await,
        "lease is 0ns; expected 20 ms to 24 hours"
    );
    assert!(
        refused(one().lease(Duration::MAX))
            .await
            .ends_with("expected 20 ms to 24 hours")
    );
    assert_eq!(
        refused(one().node_timeout(Duration::ZERO)).await,
        "node_timeout is 0ns; expected less than the lease"
    );
}
