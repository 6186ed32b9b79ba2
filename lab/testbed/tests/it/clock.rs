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
async fn a_clock_jump_forward_expires_keys_and_a_jump_back_prolongs_them() {
    let clock = Clock::new().await.unwrap();
    let shifted = Redis::builder()
        .clock(&clock)
        .await
        .unwrap()
        .start()
        .await
        .unwrap();
    let normal = Redis::start().await.unwrap();
    for server in [&shifted, &normal] {
        let () = ask(
            &server.url(),
            cmd("SET").arg("a").arg(1).arg("PX").arg(30_000),
        )
        .await
        .unwrap();
    }
    assert!((seconds(&shifted).await - seconds(&normal).await).abs() <= 1);
    clock.set(MINUTE_MS).unwrap();
    assert!((59..=61).contains(&(seconds(&shifted).await - seconds(&normal).await)));
    assert!(
        !ask::<bool>(&shifted.url(), cmd("EXISTS").arg("a"))
            .await
            .unwrap()
    );
    assert!(
        ask::<bool>(&normal.url(), cmd("EXISTS").arg("a"))
            .await
            .unwrap()
    );

    let () = ask(
        &shifted.url(),
        cmd("SET").arg("b").arg(1).arg("PX").arg(30_000),
    )
    .await
    .unwrap();
    clock.set(0).unwrap();
    assert!(
        ask::<i64>(&shifted.url(), cmd("PTTL").arg("b"))
            .await
            .unwrap()
            > 60_000
    );
}

#[tokio::test]
async fn a_restarted_server_still_uses_its_clock() {
    let clock = Clock::new().await.unwrap();
    let mut shifted = Redis::builder()
        .clock(&clock)
        .await
        .unwrap()
        .start()
        .await
        .unwrap();
    clock.set(MINUTE_MS).unwrap();
    let before = seconds(&shifted).await;
    shifted.restart().await.unwrap();
    assert!((0..=10).contains(&(seconds(&shifted).await - before)));
}
