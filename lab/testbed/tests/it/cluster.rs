//! A Redis Cluster.

use std::time::Instant;

use ::redis::{InfoDict, cluster::ClusterClient, cmd};
use testbed::{Redis, RedisCluster, eventually, timeout};

use crate::support::{ask, keys, set};

fn client_of(cluster: &RedisCluster) -> ClusterClient {
    let urls: Vec<_> = cluster.nodes().iter().map(Redis::url).collect();
    ClusterClient::builder(urls)
        .connection_timeout(timeout())
        .response_timeout(timeout())
        .build()
        .unwrap()
}

/// Waits until the node has marked another one as failed. Until then it would serve in any case.
async fn until_failure_is_marked_by(node: &Redis) {
    eventually("the mark of the failure", async || {
        let nodes = ask::<String>(&node.url(), cmd("CLUSTER").arg("NODES")).await;
        nodes.unwrap().contains("master,fail ")
    })
    .await;
}

#[tokio::test]
async fn every_node_reports_all_slots_and_every_master_serves_writes() {
    let cluster = RedisCluster::start(3).await.unwrap();
    let client = client_of(&cluster);
    let mut connection = client.get_async_connection().await.unwrap();
    for n in 0..100 {
        let () = cmd("SET")
            .arg(n)
            .arg(n)
            .query_async(&mut connection)
            .await
            .unwrap();
    }
    for node in cluster.nodes() {
        let info: String = ask(&node.url(), cmd("CLUSTER").arg("INFO")).await.unwrap();
        assert_eq!(
            InfoDict::new(&info).get::<u32>("cluster_slots_ok"),
            Some(16_384)
        );
        assert!(keys(node).await > 0);
    }
}

#[tokio::test]
async fn the_url_names_every_node() {
    let cluster = RedisCluster::start(3).await.unwrap();
    let ports: Vec<_> = cluster
        .nodes()
        .iter()
        .map(|node| format!("127.0.0.1:{}", node.port()))
        .collect();
    assert_eq!(
        cluster.url(),
        format!("redis+cluster://{}", ports.join(","))
    );
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_restarted_master_has_its_keys_and_other_masters_serve_meanwhile() {
    let mut cluster = RedisCluster::start(3).await.unwrap();
    // The slot of "b" is in the first third, that of "c" in the second. Each command goes to its
    // own master, without a cluster client that would hide errors.
    set(&cluster.nodes()[0], "b").await;
    cluster.nodes_mut()[0].kill().await.unwrap();
    until_failure_is_marked_by(&cluster.nodes()[1]).await;
    set(&cluster.nodes()[1], "c").await;
    cluster.nodes_mut()[0].restart().await.unwrap();
    assert_eq!(keys(&cluster.nodes()[0]).await, 1);
}

#[tokio::test]
async fn replicas_follow_their_masters_from_the_start() {
    let cluster = RedisCluster::start_with(2, 1).await.unwrap();
    for replica in &cluster.nodes()[2..] {
        let info: InfoDict = ask(&replica.url(), cmd("INFO").arg("replication"))
            .await
            .unwrap();
        assert_eq!(info.get::<String>("role").as_deref(), Some("slave"));
        assert_eq!(
            info.get::<String>("master_link_status").as_deref(),
            Some("up")
        );
    }
    let masters: Vec<u32> = vec![
        keys(&cluster.nodes()[0]).await,
        keys(&cluster.nodes()[1]).await,
    ];
    assert_eq!(masters, [0, 0], "the check that they follow leaves no key");
}

#[tokio::test]
async fn a_shard_whose_master_is_killed_is_served_by_its_replica() {
    let mut cluster = RedisCluster::start_with(3, 1).await.unwrap();
    let (lagging, prompt) = (cluster.shard(0)[1], cluster.shard(1)[1]);
    cluster.nodes()[lagging].lag().await.unwrap();
    // The slot of "b" is in the first third, that of "c" in the second.
    set(&cluster.nodes()[0], "b").await;
    set(&cluster.nodes()[1], "c").await;
    for (shard, replica) in [(0, lagging), (1, prompt)] {
        let killed = Instant::now();
        assert_eq!(cluster.kill_master(shard).await.unwrap(), shard);
        cluster.nodes()[replica].catch_up().await.unwrap();
        assert_eq!(cluster.until_writable(shard).await.unwrap(), replica);
        eprintln!("killed to writable: {:?}", killed.elapsed());
        // The next election needs two of three masters.
        cluster.nodes_mut()[shard].restart().await.unwrap();
    }
    let kept = [
        keys(&cluster.nodes()[lagging]).await,
        keys(&cluster.nodes()[prompt]).await,
    ];
    assert_eq!(
        kept,
        [0, 1],
        "writes that the lagging replica had not carried out are lost"
    );
}

#[tokio::test]
async fn a_slot_moves_to_a_master_that_has_joined_and_back() {
    let mut cluster = RedisCluster::start_with(3, 1).await.unwrap();
    let client = client_of(&cluster);
    let mut connection = client.get_async_connection().await.unwrap();
    let keys: Vec<_> = (0..10).map(|n| format!("{{b}}{n}")).collect();
    for key in &keys {
        let set = cmd("SET").arg(key).arg(1).to_owned();
        let () = set.query_async(&mut connection).await.unwrap();
    }
    let slot = cluster.slot_of(b"b").await.unwrap();
    let new = cluster.grow().await.unwrap();
    assert_eq!((cluster.nodes().len(), new), (8, 6));
    assert_eq!(cluster.first_grown(), Some(new));
    for to in [new, 0] {
        let from = cluster.owner_of(slot).await.unwrap();
        let migration = cluster.begin_migration(slot, to).await.unwrap();
        let first = &cluster.keys_to_migrate(&migration).await.unwrap()[0];
        cluster.migrate_key(&migration, first).await.unwrap();
        let counts = [keys_of(&cluster, to).await, keys_of(&cluster, from).await];
        assert_eq!(counts, [1, 9]);
        // Each server has some of these keys.
        let both = cmd("MGET").arg(&keys).to_owned();
        let half: Result<Vec<u32>, _> = ask(&cluster.nodes()[from].url(), &both).await;
        assert_eq!(half.unwrap_err().code(), Some("TRYAGAIN"));
        cluster.end_migration(migration).await.unwrap();
        assert_eq!(cluster.owner_of(slot).await.unwrap(), to);
        let all: Vec<u32> = both.query_async(&mut connection).await.unwrap();
        assert_eq!(all, [1; 10]);
        assert_eq!(cluster.until_writable(0).await.unwrap(), 0);
    }
    // The master has no slot left. Redis may make it a replica of the slot's new owner, with its
    // keys.
    assert_eq!(cluster.owner_of(slot).await.unwrap(), 0);
}

async fn keys_of(cluster: &RedisCluster, node: usize) -> u32 {
    keys(&cluster.nodes()[node]).await
}

#[tokio::test]
async fn a_master_that_stays_up_hands_its_shard_over() {
    let cluster = RedisCluster::start_with(3, 1).await.unwrap();
    let before = cluster.until_writable(1).await.unwrap();
    let (old, new) = cluster.hand_over(1).await.unwrap();
    assert_eq!(old, before);
    assert_eq!(cluster.until_writable(1).await.unwrap(), new);
    assert!(!cluster.nodes()[old].is_master().await.unwrap());
    assert_eq!(cluster.hand_over(1).await.unwrap(), (new, old));
}
