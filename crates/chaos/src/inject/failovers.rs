//! A master is killed, and a replica takes its place: one that had not carried everything out.

use std::time::Duration;

use anyhow::{Result, bail};
use rand::{RngExt, rngs::StdRng};
use testbed::Redis;
use tokio::time::sleep;

use super::Injected;
use crate::stage::{Stage, StockServers};

/// How long replicas lag behind before their master is killed: what is written meanwhile is lost.
const LAG_MS: std::ops::Range<u64> = 50..600;

pub(super) async fn sentinel(stage: &mut Stage, dice: &mut StdRng) -> Result<Injected> {
    let StockServers::Sentinel(group) = &mut stage.redis else {
        bail!("this stage has no sentinels")
    };
    let lag = Duration::from_millis(dice.random_range(LAG_MS));
    let old = group.master().await?;
    let replicas = |group: &testbed::RedisSentinel| {
        (0..group.servers().len())
            .filter(|server| *server != old)
            .collect::<Vec<_>>()
    };
    for replica in replicas(group) {
        group.servers()[replica].lag().await?;
    }
    sleep(lag).await;
    group.kill_master().await?;
    for replica in replicas(group) {
        group.servers()[replica].catch_up().await?;
    }
    let new = group.successor_of(old).await?;
    let story = format!(
        "server {old} killed after its replicas had lagged for {lag:?}; server {new} is the master now"
    );
    Ok(Injected {
        to_come_back: Some(old),
        ..Injected::now(story)
    })
}

pub(super) async fn cluster(stage: &mut Stage, dice: &mut StdRng) -> Result<Injected> {
    let StockServers::Cluster(cluster) = &mut stage.redis else {
        bail!("this stage has no cluster")
    };
    let shard = dice.random_range(0..cluster.masters());
    let lag = dice
        .random_bool(0.5)
        .then(|| Duration::from_millis(dice.random_range(LAG_MS)));
    let master = cluster.until_writable(shard).await?;
    let replicas: Vec<_> = cluster
        .shard(shard)
        .into_iter()
        .filter(|node| *node != master)
        .collect();
    if let Some(lag) = lag {
        for_each(&replicas, cluster.nodes(), async |node| node.lag().await).await?;
        sleep(lag).await;
    }
    cluster.kill_master(shard).await?;
    if lag.is_some() {
        for_each(&replicas, cluster.nodes(), async |node| {
            node.catch_up().await
        })
        .await?;
    }
    let new = cluster.until_writable(shard).await?;
    let before = lag.map_or_else(String::new, |lag| {
        format!(" after its replica had lagged for {lag:?}")
    });
    let story =
        format!("node {master} of shard {shard} killed{before}; node {new} is its master now");
    Ok(Injected {
        to_come_back: Some(master),
        ..Injected::now(story)
    })
}

async fn for_each(
    replicas: &[usize],
    nodes: &[Redis],
    what: impl AsyncFn(&Redis) -> testbed::Result<()>,
) -> Result<()> {
    for replica in replicas {
        what(&nodes[*replica]).await?;
    }
    Ok(())
}
