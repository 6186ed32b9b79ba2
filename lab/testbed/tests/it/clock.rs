//! A server whose wall clock jumps.
#![cfg(target_os = "linux")]

use ::redis::cmd;
use testbed::{Clock, Redis, RedisCluster};

use crate::support::ask;

/// The jump, and the life of the keys. No test takes as long.
const HOUR_MS: i64 = 3_600_000;
const HALF_HOUR_MS: i64 = HOUR_MS / 2;
/// Two readings that are further apart are not of the same clock.
const HALF_HOUR: i64 = 1800;

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
            cmd("SET").arg("a").arg(1).arg("PX").arg(HALF_HOUR_MS),
        )
        .await
        .unwrap();
    }
    assert!((seconds(&shifted).await - seconds(&normal).await).abs() < HALF_HOUR);
    clock.set(HOUR_MS).unwrap();
    let apart = seconds(&shifted).await - seconds(&normal).await;
    assert!((HALF_HOUR..3 * HALF_HOUR).contains(&apart), "{apart}");
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
        cmd("SET").arg("b").arg(1).arg("PX").arg(HALF_HOUR_MS),
    )
    .await
    .unwrap();
    clock.set(0).unwrap();
    assert!(
        ask::<i64>(&shifted.url(), cmd("PTTL").arg("b"))
            .await
            .unwrap()
            > HOUR_MS
    );
}

#[tokio::test]
async fn a_node_of_a_cluster_has_a_clock_of_its_own_and_stays_a_master() {
    let cluster = RedisCluster::start_with_clocks(Redis::builder(), 3, 0)
        .await
        .unwrap();
    // A node that was ahead may take itself for cut off until that time has come.
    for jump in [-HOUR_MS, 0] {
        cluster.clock(1).unwrap().set(jump).unwrap();
        let apart = seconds(&cluster.nodes()[1]).await - seconds(&cluster.nodes()[0]).await;
        assert!((apart - jump / 1000).abs() < HALF_HOUR, "{apart}");
        assert_eq!(cluster.until_writable(1).await.unwrap(), 1);
    }
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
    clock.set(HOUR_MS).unwrap();
    let before = seconds(&shifted).await;
    shifted.restart().await.unwrap();
    assert!((0..HALF_HOUR).contains(&(seconds(&shifted).await - before)));
}
