//! Kills a master, so that a replica is promoted which has not applied all writes.

use std::time::Duration;

use anyhow::{Result, bail};
use rand::{RngExt, rngs::StdRng};
use testbed::Redis;
use tokio::time::sleep;

use super::Injected;
use crate::env::{StockServers, TestEnv};

/// Time for which replicas lag before their master is killed. Writes in this time are lost.
const LAG_MS: std::ops::Range<u64> = 50..600;

pub(super) async fn sentinel(env: &mut TestEnv, rng: &mut StdRng) -> Result<Injected> {
    let StockServers::Sentinel(group) = &mut env.redis else {
        bail!("this environment has no sentinels")
    };
    let lag = Duration::from_millis(rng.random_range(LAG_MS));
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
    let description = format!(
        "server {old} killed after its replicas had lagged for {lag:?}; server {new} is the master now"
    );
    Ok(Injected {
        killed_master: Some(old),
        ..Injected::now(description)
    })
}

pub(super) async fn cluster(env: &mut TestEnv, rng: &mut StdRng) -> Result<Injected> {
    let StockServers::Cluster(cluster) = &mut env.redis else {
        bail!("this environment has no cluster")
    };
    let shard = rng.random_range(0..cluster.masters());
    let lag = rng
        .random_bool(0.5)
        .then(|| Duration::from_millis(rng.random_range(LAG_MS)));
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
    let description =
        format!("node {master} of shard {shard} killed{before}; node {new} is its master now");
    Ok(Injected {
        killed_master: Some(master),
        ..Injected::now(description)
    })
}

async fn for_each(
    replicas: &[usize],
    nodes: &[Redis],
    action: impl AsyncFn(&Redis) -> testbed::Result<()>,
) -> Result<()> {
    for replica in replicas {
        action(&nodes[*replica]).await?;
    }
    Ok(())
}
