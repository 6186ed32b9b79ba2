//! Servers that hang, die, restart, forget or may not be trusted.

use std::time::{Duration, Instant};

use lock::{Answer, Exclusion, Lock, LockError, Redlock, RedlockBuilder, Standing};
use testbed::{AppendFsync, Deadline, Redis, in_time, timeout};
use tokio::time::sleep;

use crate::support::{
    HOUR, acquire_everywhere, admit, becomes, builder, count, five, is_free, is_nowhere, ms, name,
    patient, redlock, refused, run, start, token,
};

async fn voting(redlock: &Redlock) -> usize {
    redlock
        .status()
        .await
        .iter()
        .filter(|node| matches!(node.standing, Standing::Voting))
        .count()
}

fn has_forgotten(answer: &Answer) -> bool {
    matches!(answer, Answer::NotVoting(Exclusion::Forgot { .. }))
}

#[tokio::test]
async fn one_of_three_is_no_quorum_and_both_causes_are_told() {
    let mut three = start(3).await;
    let redlock = redlock(&three).await;
    three[0].kill().await.unwrap();
    three[1].kill().await.unwrap();
    let error = refused(redlock.acquire("causes").await);
    assert!(
        matches!(error, LockError::NoQuorum { .. }) && error.is_retryable(),
        "{error}"
    );
    assert_eq!(
        count(&error, |answer| matches!(
            answer,
            Answer::Failed(_) | Answer::TimedOut
        )),
        2,
        "{error}"
    );
    assert!(
        error.to_string().contains(&three[0].port().to_string())
            && error.to_string().contains(&three[1].port().to_string())
    );
    is_nowhere(&three[2..], "causes").await;
}

#[tokio::test]
async fn one_dead_node_does_not_hurt() {
    let mut five = start(5).await;
    admit(&five).await;
    // A client that waited for the node would wait for half an hour.
    let redlock = builder(&five).lease(HOUR).node_timeout(HOUR / 2);
    let redlock = redlock.build().await.unwrap();
    five[2].kill().await.unwrap();
    for _ in 0..3 {
        let guard = in_time("a lock", redlock.try_acquire("dead")).await;
        let release = guard.unwrap().release();
        in_time("its release", release).await.unwrap();
    }
}

#[tokio::test]
async fn a_hanging_majority_fails_within_the_budget_and_a_late_success_is_given_back() {
    let five = start(5).await;
    admit(&five).await;
    // Without the limit for each node, a request would wait for an hour.
    let limit = ms(1000);
    let redlock = builder(&five).lease(HOUR).node_timeout(limit);
    let redlock = redlock.build().await.unwrap();
    let guard = acquire_everywhere(&redlock, &five, "hang").await;
    let first = guard.token();
    guard.release().await.unwrap();
    is_nowhere(&five, "hang").await;
    for server in &five[..3] {
        server.pause().await.unwrap();
    }
    let since = Instant::now();
    let error = refused(in_time("the end of the attempt", redlock.acquire("hang")).await);
    assert!(since.elapsed() >= limit * 3 / 4, "{:?}", since.elapsed());
    assert!(
        error.votes()[..3]
            .iter()
            .all(|vote| matches!(vote.answer, Answer::TimedOut)),
        "{error}"
    );
    for server in &five[..3] {
        server.resume().await.unwrap();
    }
    // What they were sent they now carry out: the acquire, and after it the release.
    is_nowhere(&five, "hang").await;
    becomes("the late fence is there", async || {
        let fence = crate::support::get(&five[0], "hang:fence").await;
        fence.is_some_and(|fence| token(fence.parse().unwrap()) > first)
    })
    .await;
    is_nowhere(&five, "hang").await;
    let guard = patient(&five).await.try_acquire("hang").await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_quorum_that_comes_too_late_is_given_back() {
    let five = five().await;
    // What is left of the lease without the drift of the clocks, but for ten microseconds.
    let most = HOUR - HOUR / 100 - ms(2);
    let redlock = builder(five)
        .lease(HOUR)
        .node_timeout(timeout())
        .min_validity(most - Duration::from_micros(10))
        .build()
        .await
        .unwrap();
    let name = name("late");
    let error = refused(redlock.try_acquire(&name).await);
    assert!(matches!(error, LockError::TooLate { .. }), "{error}");
    assert!(
        count(&error, |answer| matches!(answer, Answer::Accepted)) >= 3,
        "{error}"
    );
    is_nowhere(five, &name).await;
}

#[tokio::test]
async fn flushed_scripts_are_sent_again() {
    let five = five().await;
    let redlock = patient(five).await;
    let name = name("scripts");
    let flush = async || {
        for server in five {
            run(server, &["SCRIPT", "FLUSH"]).await;
        }
    };
    flush().await;
    let mut guard = redlock.acquire(&name).await.unwrap();
    flush().await;
    guard.extend().await.unwrap();
    flush().await;
    guard.release().await.unwrap();
    is_nowhere(five, &name).await;
}

#[tokio::test]
async fn flushed_data_is_noticed_and_no_token_repeats() {
    let five = start(5).await;
    admit(&five).await;
    // The test waits for one lease.
    let redlock = builder(&five).lease(ms(4000)).build().await.unwrap();
    let mut guard = acquire_everywhere(&redlock, &five, "flushed").await;
    for server in &five {
        run(server, &["FLUSHALL"]).await;
    }
    let error = guard.extend().await.unwrap_err();
    assert!(
        matches!(error, LockError::Lost { .. }) && count(&error, has_forgotten) >= 3,
        "{error}"
    );
    let error = refused(redlock.acquire("flushed").await);
    assert!(
        matches!(error, LockError::NoQuorum { .. }) && count(&error, has_forgotten) >= 3,
        "{error}"
    );
    let again = redlock.acquire_within("flushed", timeout()).await.unwrap();
    assert!(
        again.token() > guard.token(),
        "who has seen a token does not propose it again"
    );
}

#[tokio::test]
async fn a_restarted_node_does_not_vote_until_the_longest_lease_is_over() {
    let mut three = start(3).await;
    let redlock = redlock(&three).await;
    let guard = acquire_everywhere(&redlock, &three, "restarted").await;
    three[0].restart().await.unwrap();
    three[1].kill().await.unwrap();
    becomes("the restart is noticed", async || {
        voting(&redlock).await == 1
    })
    .await;
    let error = refused(redlock.try_acquire("another").await);
    assert!(matches!(error, LockError::NoQuorum { .. }), "{error}");
    assert_eq!(count(&error, has_forgotten), 1, "{error}");
    three[1].restart().await.unwrap();
    // All three answer, so all that can be known of the tokens is known.
    becomes("they vote again", async || voting(&redlock).await == 3).await;
    let next = redlock.acquire("restarted").await.unwrap();
    assert!(next.token() > guard.token());
}

#[tokio::test]
async fn a_wiped_node_never_makes_a_token_repeat() {
    let mut three = Vec::new();
    for _ in 0..3 {
        three.push(
            Redis::builder()
                .appendfsync(AppendFsync::No)
                .start()
                .await
                .unwrap(),
        );
    }
    // A lease and a timeout that a busy machine keeps: the test waits for one lease.
    let unhurried = |servers: &[Redis]| builder(servers).lease(ms(4000)).node_timeout(ms(1500));
    let redlock = unhurried(&three).build().await.unwrap();
    redlock.observe("wiped", token(40)).unwrap();
    let guard = acquire_everywhere(&redlock, &three, "wiped").await;
    let first = guard.token();
    assert!(first > token(40), "{first}");
    guard.release().await.unwrap();
    three[2].restart().await.unwrap();
    // A client that has never seen a token waits with the others for the node to vote.
    let fresh = unhurried(&three).build().await.unwrap();
    becomes("the wiped node votes", async || voting(&fresh).await == 3).await;
    // One of the two that remember is away: the quorum has the one that forgot.
    three[0].kill().await.unwrap();
    let guard = fresh.acquire("wiped").await.unwrap();
    assert!(guard.token() > first, "{}", guard.token());
    let statuses = fresh.status().await;
    assert_eq!(
        statuses
            .iter()
            .filter(|node| matches!(node.standing, Standing::Unreachable(_)))
            .count(),
        1
    );
    assert!(
        statuses
            .iter()
            .filter_map(|node| node.high_water)
            .all(|mark| mark >= first),
        "{statuses:?}"
    );
}

#[tokio::test]
async fn a_server_that_evicts_does_not_vote() {
    let mut three = start(2).await;
    three.push(
        Redis::builder()
            .config("maxmemory-policy", "volatile-lru")
            .start()
            .await
            .unwrap(),
    );
    let redlock = redlock(&three).await;
    let statuses = redlock.status().await;
    assert!(
        matches!(&statuses[2].standing, Standing::Excluded(Exclusion::Evicts { policy }) if policy == "volatile-lru"),
        "{statuses:?}"
    );
    is_free(redlock.acquire("evict")).await;
    run(
        &three[0],
        &["CONFIG", "SET", "maxmemory-policy", "allkeys-random"],
    )
    .await;
    becomes("the change is noticed", async || {
        voting(&redlock).await == 1
    })
    .await;
    let error = refused(redlock.acquire("evict").await);
    assert_eq!(
        count(&error, |answer| matches!(
            answer,
            Answer::NotVoting(Exclusion::Evicts { .. })
        )),
        2,
        "{error}"
    );
}

#[tokio::test]
async fn nodes_that_are_new_vote_after_the_longest_lease() {
    let three = start(3).await;
    let since = Instant::now();
    let redlock = RedlockBuilder::new(three.iter().map(Redis::url))
        .lease(ms(500))
        .node_timeout(ms(300))
        .build()
        .await
        .unwrap();
    assert!(
        since.elapsed() >= ms(500),
        "a client may hold a lock that they have lost: {:?}",
        since.elapsed()
    );
    assert_eq!(voting(&redlock).await, 3);
    // They are admitted for all clients: by itself, this one would wait for its lease.
    let other = builder(&three).lease(HOUR).build();
    in_time("a quorum", other).await.unwrap();
}

#[tokio::test]
async fn clients_that_come_and_go_do_not_each_wait_for_new_nodes_from_the_beginning() {
    let three = start(3).await;
    let hasty = async || {
        let redlock = builder(&three)
            .lease(ms(2000))
            .build_without_waiting()
            .unwrap();
        redlock.acquire_within("hasty", ms(400)).await
    };
    let (since, deadline) = (Instant::now(), Deadline::start());
    let mut refusals = 0;
    loop {
        match hasty().await {
            Ok(guard) => break guard.release().await.unwrap(),
            Err(error) => {
                assert!(matches!(error, LockError::NoQuorum { .. }), "{error}");
                refusals += 1;
            }
        }
        deadline.check("it never came to vote");
    }
    assert!(
        refusals >= 2 && since.elapsed() >= ms(2000),
        "a client may have held a lock that they have lost: {:?}",
        since.elapsed()
    );
    // A note about an earlier start of the server is of no use.
    let mut three = three;
    let earlier = "0123456789abcdef0123456789abcdef01234567:1:x";
    run(&three[0], &["SET", "lock:node:watch", earlier]).await;
    three[0].restart().await.unwrap();
    let redlock = builder(&three).lease(HOUR);
    let redlock = redlock.build_without_waiting().unwrap();
    let statuses = redlock.status().await;
    assert!(
        matches!(&statuses[0].standing, Standing::Excluded(Exclusion::Forgot { votes_in }) if *votes_in > HOUR / 2),
        "{statuses:?}"
    );
}

#[tokio::test]
async fn a_node_that_forgets_again_as_soon_as_it_votes_is_waited_for_again_by_all_clients() {
    let three = start(3).await;
    // The other one sees the first loss later, and has not seen the node vote when it is lost
    // again.
    let (redlock, _other) = (redlock(&three).await, redlock(&three).await);
    for pause in [100, 400, 700] {
        becomes("all of them vote", async || voting(&redlock).await == 3).await;
        sleep(ms(pause)).await;
        run(&three[0], &["FLUSHALL"]).await;
        redlock.status().await;
        let votes = async || {
            crate::support::get(&three[0], "lock:node:generation")
                .await
                .is_some()
        };
        becomes("it votes again", &votes).await;
        let guard = redlock.acquire("forgotten twice").await.unwrap();
        run(&three[0], &["FLUSHALL"]).await;
        becomes("it votes once more", &votes).await;
        assert!(
            guard.is_lost(),
            "its vote may have been needed for {:?} more",
            guard.validity()
        );
    }
}
