//! A Redis server and its replicas.

use std::time::Duration;

use ::redis::cmd;
use testbed::Redis;

use crate::support::{has, keys, set};

async fn master_and_replica() -> (Redis, Redis) {
    let master = Redis::start().await.unwrap();
    let replica = Redis::builder().replica_of(&master).start().await.unwrap();
    master.is_followed_by(1).await.unwrap();
    (master, replica)
}

#[tokio::test]
async fn a_following_replica_has_the_writes_of_its_killed_master() {
    let (mut master, replica) = master_and_replica().await;
    set(&master, "a").await;
    assert_eq!(
        keys(&master).await,
        1,
        "the check that it follows leaves no key"
    );
    // A replica that has not read it yet may lose it with the connection.
    master.is_followed_by(1).await.unwrap();
    master.kill().await.unwrap();
    replica.notices_its_masters_end().await.unwrap();
    replica.promote().await.unwrap();
    assert!(has(&replica, "a").await);
    set(&replica, "b").await;
}

/// Every test of a lost write relies on this.
#[tokio::test]
async fn writes_that_a_lagging_replica_has_not_carried_out_are_lost_with_its_master() {
    let (mut master, replica) = master_and_replica().await;
    set(&master, "before").await;
    master.is_followed_by(1).await.unwrap();
    replica.lag().await.unwrap();
    set(&master, "meanwhile").await;
    master.kill().await.unwrap();
    replica.notices_its_masters_end().await.unwrap();
    replica.catch_up().await.unwrap();
    replica.promote().await.unwrap();
    assert_eq!(
        (
            has(&replica, "before").await,
            has(&replica, "meanwhile").await
        ),
        (true, false)
    );
}

#[tokio::test]
async fn a_lagging_replica_catches_up() {
    let (master, replica) = master_and_replica().await;
    replica.lag().await.unwrap();
    set(&master, "meanwhile").await;
    assert!(!has(&replica, "meanwhile").await);
    let followed = tokio::time::timeout(Duration::from_secs(1), master.is_followed_by(1)).await;
    assert!(followed.is_err(), "a lagging replica does not follow");
    replica.catch_up().await.unwrap();
    master.is_followed_by(1).await.unwrap();
    assert!(has(&replica, "meanwhile").await);
}

#[tokio::test]
async fn roles_survive_a_restart() {
    let (mut old, mut new) = master_and_replica().await;
    new.promote().await.unwrap();
    old.follow(&new).await.unwrap();
    new.restart().await.unwrap();
    old.restart().await.unwrap();
    new.is_followed_by(1).await.unwrap();
    assert_eq!(
        (
            old.is_master().await.unwrap(),
            new.is_master().await.unwrap()
        ),
        (false, true)
    );
}

/// A client that stays connected to the old master learns of the failover only from its refusals.
#[tokio::test]
async fn a_master_hands_its_role_over_without_a_lost_write_or_a_cut_connection() {
    let (old, new) = master_and_replica().await;
    let mut client = testbed::patient_connection(&old.url()).await.unwrap();
    let mut write = async |n: u32| cmd("SET").arg(n).arg(1).exec_async(&mut client).await;
    for n in 0..100 {
        write(n).await.unwrap();
    }
    old.hand_over_to(&new).await.unwrap();
    let refused = write(100).await.unwrap_err();
    assert_eq!(refused.code(), Some("READONLY"), "{refused}");
    assert_eq!(keys(&new).await, 100);
    set(&new, "b").await;
    new.is_followed_by(1).await.unwrap();
    assert!(has(&old, "b").await && !old.is_master().await.unwrap());
}
