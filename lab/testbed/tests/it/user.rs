//! A user of a Redis server whose password changes, and who is missing for a while.

use ::redis::{aio::MultiplexedConnection, cmd};
use testbed::{Redis, RedisCluster, RedisUser};

use crate::support::ask;

const SHOP: RedisUser = RedisUser {
    name: "shop",
    password: "secret",
};

async fn log_in(server: &Redis) -> MultiplexedConnection {
    testbed::patient_connection(&SHOP.at(&server.url()))
        .await
        .unwrap()
}

async fn is_refused(server: &Redis) -> bool {
    ask::<()>(&SHOP.at(&server.url()), &cmd("PING"))
        .await
        .is_err()
}

#[tokio::test]
async fn another_password_cuts_the_user_off_and_nobody_else() {
    let server = Redis::builder().user(&SHOP).start().await.unwrap();
    let mut shop = log_in(&server).await;
    let mut other = testbed::patient_connection(&server.url()).await.unwrap();
    assert_eq!(server.connections_of(&SHOP).await.unwrap(), 1);
    server.change_password(&SHOP, "another").await.unwrap();
    assert!(cmd("PING").exec_async(&mut shop).await.is_err());
    cmd("PING").exec_async(&mut other).await.unwrap();
    assert!(is_refused(&server).await);
    server.create_user(&SHOP).await.unwrap();
    log_in(&server).await;
}

#[tokio::test]
async fn a_removed_user_is_missing_also_after_a_restart_until_it_is_created() {
    let mut server = Redis::builder().user(&SHOP).start().await.unwrap();
    let mut shop = log_in(&server).await;
    server.remove_user(&SHOP).await.unwrap();
    assert!(cmd("PING").exec_async(&mut shop).await.is_err());
    server.restart().await.unwrap();
    assert!(is_refused(&server).await);
    server.create_user(&SHOP).await.unwrap();
    server.restart().await.unwrap();
    let who: String = cmd("ACL")
        .arg("WHOAMI")
        .query_async(&mut log_in(&server).await)
        .await
        .unwrap();
    assert_eq!(who, SHOP.name);
}

#[tokio::test]
async fn every_node_of_a_cluster_knows_the_user() {
    let node = Redis::builder().user(&SHOP);
    let mut cluster = RedisCluster::start_from(node, 3, 0).await.unwrap();
    cluster.grow().await.unwrap();
    assert_eq!(cluster.nodes().len(), 4);
    for node in cluster.nodes() {
        log_in(node).await;
    }
}
