//! A master, its replicas, and sentinels.

use std::time::Instant;

use ::redis::cmd;
use testbed::RedisSentinel;

use crate::support::{ask, has, set};

#[tokio::test]
async fn the_url_names_every_sentinel_and_the_master() {
    let began = Instant::now();
    let group = RedisSentinel::start(2).await.unwrap();
    eprintln!(
        "one master, two replicas and three sentinels agreed after {:?}",
        began.elapsed()
    );
    let ports: Vec<_> = group
        .sentinels()
        .iter()
        .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
        .collect();
    assert_eq!(
        group.url(),
        format!("redis+sentinel://{}/stock", ports.join(","))
    );
    assert_eq!(group.master().await.unwrap(), 0);
}

#[tokio::test]
async fn a_killed_master_has_a_successor_and_returns_as_its_replica() {
    let mut group = RedisSentinel::start(2).await.unwrap();
    set(&group.servers()[0], "a").await;
    group.servers()[0].is_followed_by(2).await.unwrap();
    let killed = Instant::now();
    let old = group.kill_master().await.unwrap();
    let new = group.successor_of(old).await.unwrap();
    eprintln!("killed to promoted: {:?}", killed.elapsed());
    assert!(old == 0 && new != 0 && has(&group.servers()[new], "a").await);
    set(&group.servers()[new], "b").await;
    group.restart_as_replica(old).await.unwrap();
    group.servers()[new].is_followed_by(2).await.unwrap();
    assert!(has(&group.servers()[old], "b").await);
    assert_eq!(group.master().await.unwrap(), new);
}

#[tokio::test]
async fn a_failover_to_a_lagging_replica_loses_writes() {
    let mut group = RedisSentinel::start(1).await.unwrap();
    group.servers()[1].lag().await.unwrap();
    set(&group.servers()[0], "a").await;
    let old = group.kill_master().await.unwrap();
    group.servers()[1].catch_up().await.unwrap();
    assert_eq!(group.successor_of(old).await.unwrap(), 1);
    assert!(!has(&group.servers()[1], "a").await);
}

#[tokio::test]
async fn a_planned_failover_needs_no_fault_and_loses_no_write() {
    let group = RedisSentinel::start(1).await.unwrap();
    set(&group.servers()[0], "a").await;
    group.servers()[0].is_followed_by(1).await.unwrap();
    let new = group.fail_over().await.unwrap();
    assert!(new == 1 && has(&group.servers()[1], "a").await);
    group.becomes_replica(0).await.unwrap();
}

#[tokio::test]
async fn two_of_three_sentinels_can_fail_over() {
    let mut group = RedisSentinel::start(1).await.unwrap();
    group.sentinels_mut()[0].kill().await.unwrap();
    let old = group.kill_master().await.unwrap();
    assert_eq!(group.successor_of(old).await.unwrap(), 1);
    group.sentinels_mut()[0].restart().await.unwrap();
}

#[tokio::test]
async fn a_master_that_stays_up_hands_its_role_over_and_refuses_writes() {
    let group = RedisSentinel::start(2).await.unwrap();
    let old = &group.servers()[0];
    set(old, "a").await;
    let (from, to) = group.hand_over().await.unwrap();
    let new = &group.servers()[to];
    assert!(from == 0 && to != 0 && has(new, "a").await);
    let refused = ask::<()>(&old.url(), cmd("SET").arg("b").arg(1)).await;
    assert_eq!(refused.unwrap_err().code(), Some("READONLY"));
    set(new, "b").await;
    // The refusal without replicas has ended, also for the time when it is a master again.
    let required: (String, String) = ask(
        &old.url(),
        cmd("CONFIG").arg("GET").arg("min-replicas-to-write"),
    )
    .await
    .unwrap();
    assert_eq!(required.1, "0");
    assert_eq!(group.master().await.unwrap(), to);
}
