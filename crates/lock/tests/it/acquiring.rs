//! Who gets a lock, and what is left behind by those who do not.

use std::time::{Duration, Instant};

use futures::future::join_all;
use lock::{Answer, Lock, LockError, Request, Wait};
use testbed::{in_time, timeout};
use tokio::task::JoinSet;

use crate::support::{
    HOUR, acquire_everywhere, admit, becomes, builder, count, five, get, holding, is_free, is_held,
    is_nowhere, kept_out, ms, name, occupy, patient, raw, redlock, refused, run, start, token,
};

#[tokio::test]
async fn it_is_acquired_exactly_if_a_quorum_is_free() {
    let five = five().await;
    let redlock = patient(five).await;
    for subset in 0..32_u32 {
        let name = name("subset");
        for (_, server) in five
            .iter()
            .enumerate()
            .filter(|(index, _)| subset & (1 << index) != 0)
        {
            occupy(server, &name, HOUR).await;
        }
        let foreign = subset.count_ones() as usize;
        match redlock.try_acquire(&name).await {
            Ok(guard) => {
                assert!(foreign <= 2, "{subset:05b}");
                guard.release().await.unwrap();
            }
            Err(error) => {
                assert!(foreign >= 3, "{subset:05b}: {error}");
                assert!(matches!(error, LockError::Held { .. }), "{error}");
                assert!(
                    count(&error, is_held) >= 3,
                    "every vote is in the error: {error}"
                );
                assert_eq!(error.votes().len(), 5);
            }
        }
        becomes("only the foreign locks are left", async || {
            holding(five, &name).await == foreign
        })
        .await;
        for (_, server) in five
            .iter()
            .enumerate()
            .filter(|(index, _)| subset & (1 << index) != 0)
        {
            assert_eq!(get(server, &name).await.unwrap(), "another owner");
        }
    }
}

#[tokio::test]
async fn the_lock_is_on_every_node_under_its_plain_name() {
    let five = five().await;
    let redlock = patient(five).await;
    let name = name("plain");
    let guard = acquire_everywhere(&redlock, five, &name).await;
    assert_eq!(
        guard.sequencer().to_string(),
        format!("{}:{name}", guard.token())
    );
    guard.release().await.unwrap();
    is_nowhere(five, &name).await;
}

#[tokio::test]
async fn tokens_rise_from_holder_to_holder_and_from_client_to_client() {
    let five = five().await;
    let (one, other) = (patient(five).await, patient(five).await);
    let name = name("rising");
    let mut last = None;
    for _ in 0..5 {
        for redlock in [&one, &other] {
            let guard = redlock.acquire(&name).await.unwrap();
            assert!(
                Some(guard.token()) > last,
                "{:?} after {last:?}",
                guard.token()
            );
            last = Some(guard.token());
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_token_is_above_every_fence_also_beyond_2_to_the_53() {
    let five = start(5).await;
    let redlock = redlock(&five).await;
    let name = name("beyond");
    for (server, fence) in five.iter().zip([
        "9007199254740993",
        "7",
        "9007199254740993",
        "9007199254740993",
        "9007199254740992",
    ]) {
        run(server, &["SET", &format!("{name}:fence"), fence]).await;
    }
    let guard = redlock.acquire(&name).await.unwrap();
    // As numbers, the fence and the one below it are equal.
    assert_eq!(guard.token(), token(9_007_199_254_740_994));
    guard.release().await.unwrap();
}

/// Other clients acquire locks of new names all the time, which raises the mark that a new name
/// starts above. A free lock must not be refused for that.
#[tokio::test]
async fn a_free_lock_is_acquired_while_the_marks_of_all_nodes_rise() {
    let servers = start(3).await;
    admit(&servers).await;
    let redlock = patient(&servers).await;
    let rising = async {
        let mut nodes = join_all(servers.iter().map(raw)).await;
        let mut raise = redis::cmd("INCRBY");
        raise.arg("lock:node:high-water").arg(2);
        loop {
            let raised = nodes.iter_mut().map(|node| raise.exec_async(node));
            join_all(raised).await.into_iter().for_each(Result::unwrap);
        }
    };
    let acquiring = async {
        for _ in 0..50 {
            let guard = redlock.try_acquire(&name("new")).await.unwrap();
            guard.release().await.unwrap();
        }
    };
    tokio::select! {
        () = acquiring => {}
        () = rising => unreachable!(),
    }
}

#[tokio::test]
async fn a_name_whose_tokens_are_used_up_is_refused() {
    let five = start(5).await;
    let redlock = redlock(&five).await;
    for server in &five {
        run(server, &["SET", "used up:fence", &i64::MAX.to_string()]).await;
    }
    let error = refused(redlock.acquire("used up").await);
    assert!(matches!(error, LockError::NoTokenLeft { .. }), "{error}");
    for server in &five {
        run(server, &["SET", "nonsense:fence", "99999999999999999999"]).await;
    }
    let error = refused(redlock.acquire("nonsense").await);
    assert_eq!(
        count(&error, |answer| matches!(answer, Answer::Unreadable(_))),
        3,
        "{error}"
    );
    assert_eq!(
        redlock.acquire("another").await.unwrap().token(),
        token(1),
        "other names are not harmed"
    );
}

#[tokio::test]
async fn a_token_is_above_the_one_that_a_row_has() {
    let five = five().await;
    let redlock = patient(five).await;
    let name = name("row");
    redlock.observe(&name, token(1000)).unwrap();
    assert!(redlock.acquire(&name).await.unwrap().token() > token(1000));
}

#[tokio::test]
async fn of_three_racers_one_wins_and_in_the_end_each_has_had_it() {
    let five = five().await;
    let name = name("race");
    let mut racers = JoinSet::new();
    for _ in 0..3 {
        let (redlock, name) = (patient(five).await, name.clone());
        racers.spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..5 {
                let guard = redlock.acquire(&name).await.unwrap();
                let from = Instant::now();
                tokens.push((guard.token(), from, Instant::now()));
                tokio::time::sleep(ms(2)).await;
                assert!(!guard.is_lost());
                tokens.last_mut().unwrap().2 = Instant::now();
                guard.release().await.unwrap();
            }
            tokens
        });
    }
    let mut held: Vec<_> = racers.join_all().await.into_iter().flatten().collect();
    held.sort();
    assert_eq!(held.len(), 15);
    assert!(
        held.is_sorted_by(|one, next| one.0 < next.0 && one.2 <= next.1),
        "one after the other, in the order of the tokens: {held:?}"
    );
}

#[tokio::test]
async fn one_who_waits_gets_it_when_it_is_given_back_and_when_it_ends() {
    let five = five().await;
    // The second one's lease ends in the test.
    let (holder, waiting) = (patient(five).await, redlock(five).await);
    let name = name("wait");
    let guard = holder.acquire(&name).await.unwrap();
    let waits = tokio::spawn({
        let (waiting, name) = (waiting.clone(), name.clone());
        async move { waiting.acquire(&name).await }
    });
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    let second = in_time("its turn", waits).await.unwrap().unwrap();
    // Its holder dies without a word.
    std::mem::forget(second);
    let third = holder.acquire_within(&name, timeout()).await.unwrap();
    third.release().await.unwrap();
}

#[tokio::test]
async fn who_waits_in_vain_is_told_who_stood_in_the_way() {
    let five = five().await;
    let redlock = patient(five).await;
    let name = name("vain");
    for server in five {
        occupy(server, &name, HOUR).await;
    }
    let since = Instant::now();
    let waits = redlock.acquire_within(&name, ms(300));
    let error = refused(in_time("the end of the wait", waits).await);
    assert!(
        matches!(&error, LockError::Held { .. }) && count(&error, is_held) >= 3,
        "{error}"
    );
    assert!(since.elapsed() >= ms(300), "{:?}", since.elapsed());
}

#[tokio::test]
async fn a_cancelled_acquire_leaves_nothing_behind() {
    let five = five().await;
    let redlock = patient(five).await;
    // Steps of 40 microseconds reach the awaits before, between and after the requests. An attempt
    // that succeeds first returns a guard, which is dropped.
    for step in 0..60_u64 {
        let name = name("cancelled");
        let attempt = Duration::from_micros(step * 40);
        let _ = tokio::time::timeout(attempt, redlock.acquire(&name)).await;
        is_nowhere(five, &name).await;
    }
    let name = name("cancelled while waiting");
    for server in &five[..3] {
        occupy(server, &name, HOUR).await;
    }
    for step in 0..10_u64 {
        let _ = tokio::time::timeout(ms(step * 13), redlock.acquire(&name)).await;
        becomes("only the foreign locks are left", async || {
            holding(five, &name).await == 3
        })
        .await;
    }
}

#[tokio::test]
async fn a_tie_of_two_and_two_is_nobodys() {
    let four = start(4).await;
    let redlock = redlock(&four).await;
    for server in &four[..2] {
        occupy(server, "tie", HOUR).await;
    }
    let error = refused(redlock.try_acquire("tie").await);
    assert!(matches!(error, LockError::Held { .. }), "{error}");
    assert_eq!(count(&error, is_held), 2, "{error}");
    becomes("only the foreign locks are left", async || {
        holding(&four, "tie").await == 2
    })
    .await;
    run(&four[0], &["DEL", "tie"]).await;
    is_free(redlock.try_acquire("tie")).await;
}

#[tokio::test]
async fn a_lock_delay_keeps_others_out_after_the_lease_but_not_after_a_release() {
    let five = five().await;
    let name = name("delay");
    let delayed = async |lease: Duration, delay: Duration| {
        let redlock = builder(five).lease(lease).node_timeout(lease * 2 / 3);
        redlock.lock_delay(delay).build().await.unwrap()
    };
    let redlock = delayed(ms(1500), HOUR).await;
    for _ in 0..2 {
        // If the delay held after a release, the second one would wait for an hour.
        let guard = redlock.acquire_within(&name, timeout()).await.unwrap();
        assert!(guard.validity() <= ms(1500));
        guard.release().await.unwrap();
    }
    let redlock = delayed(ms(500), ms(6000)).await;
    let guard = redlock.acquire_within(&name, timeout()).await.unwrap();
    guard.lost().await;
    // Its answers may be late on a busy machine.
    let error = refused(patient(five).await.try_acquire(&name).await);
    assert!(
        matches!(error, LockError::Held { .. }),
        "the lease is over, the delay is not: {error}"
    );
    std::mem::forget(guard);
    assert!(redlock.acquire_within(&name, timeout()).await.is_ok());
}

#[tokio::test]
async fn a_lock_of_another_kind_is_respected_and_left_intact() {
    let five = five().await;
    let redlock = patient(five).await;
    let name = name("another kind");
    for server in five {
        // Redisson's locks are hashes.
        run(server, &["HSET", &name, "a client:1", "1"]).await;
    }
    for request in [Request::new(&name), Request::new(&name).shared()] {
        kept_out(redlock.request(request.wait(Wait::Never))).await;
    }
    for server in five {
        let count: u32 = redis::cmd("HGET")
            .arg(&name)
            .arg("a client:1")
            .query_async(&mut raw(server).await)
            .await
            .unwrap();
        assert_eq!(count, 1);
    }
}
