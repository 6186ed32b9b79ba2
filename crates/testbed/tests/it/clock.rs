//! A server whose wall clock jumps.
#![cfg(target_os = "linux")]

use ::redis::cmd;
use testbed::{Clock, Redis};

use crate::support::ask;

const MINUTE_MS: i64 = 60_000;

async fn seconds(redis: &Redis) -> i64 {
    let (seconds, _micros): (i64, i64) = ask(&redis.url(), &cmd("TIME")).await.unwrap();
    seconds
}

#[tokio::test]
async fn what_lives_for_half_a_minute_is_dead_when_the_clock_jumps_a_minute_and_a_jump_back_lets_it_live_longer()
 {
    let clock = Clock::new().await.unwrap();
    let bent = Redis::builder()
        .clock(&clock)
        .await
        .unwrap()
        .start()
        .await
        .unwrap();
    let straight = Redis::start().await.unwrap();
    for server in [&bent, &straight] {
        let () = ask(
            &server.url(),
            cmd("SET").arg("a").arg(1).arg("PX").arg(30_000),
        )
        .await
        .unwrap();
    }
    assert!((seconds(&bent).await - seconds(&straight).await).abs() <= 1);
    clock.set(MINUTE_MS).unwrap();
    assert!((59..=61).contains(&(seconds(&bent).await - seconds(&straight).await)));
    assert!(
        !ask::<bool>(&bent.url(), cmd("EXISTS").arg("a"))
            .await
            .unwrap()
    );
    assert!(
        ask::<bool>(&straight.url(), cmd("EXISTS").arg("a"))
            .await
            .unwrap()
    );

    let () = ask(
        &bent.url(),
        cmd("SET").arg("b").arg(1).arg("PX").arg(30_000),
    )
    .await
    .unwrap();
    clock.set(0).unwrap();
    assert!(ask::<i64>(&bent.url(), cmd("PTTL").arg("b")).await.unwrap() > 60_000);
}

#[tokio::test]
async fn a_restarted_server_still_tells_the_time_by_its_clock() {
    let clock = Clock::new().await.unwrap();
    let mut bent = Redis::builder()
        .clock(&clock)
        .await
        .unwrap()
        .start()
        .await
        .unwrap();
    clock.set(MINUTE_MS).unwrap();
    let before = seconds(&bent).await;
    bent.restart().await.unwrap();
    assert!((0..=10).contains(&(seconds(&bent).await - before)));
}
