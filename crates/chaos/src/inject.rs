//! Breaks something, and mends what an operator would mend. What the system has to mend by itself is left to it.

mod cuts;
mod failovers;
mod kills;
mod stops;

use std::time::Duration;

use anyhow::{Context, Result};
use rand::{RngExt, rngs::StdRng};
use testbed::Clock;
use tokio::time::{Instant, sleep};

use crate::{
    fault::Fault,
    plan::Round,
    stage::{LedgerServer, Stage, StockServers},
};

/// A fault that is over.
#[derive(Debug)]
pub struct Injected {
    /// When it was over: from then on the system heals.
    pub over: Instant,
    /// What was done, for the log.
    pub story: String,
    /// The server that was killed and comes back as a replica, while the system heals.
    pub to_come_back: Option<usize>,
}

impl Injected {
    fn now(story: impl Into<String>) -> Self {
        Self {
            over: Instant::now(),
            story: story.into(),
            to_come_back: None,
        }
    }
}

/// Breaks what the round says, for as long as it says.
pub async fn inject(stage: &mut Stage, round: &Round) -> Result<Injected> {
    let mut dice = round.dice("fault");
    match round.fault {
        Fault::OrderServiceKilled
        | Fault::RecorderKilled
        | Fault::ReconcilerKilled
        | Fault::EverythingKilled => kills::processes(stage, round, &mut dice).await,
        Fault::RedisKilled => kills::redis(stage, round).await,
        Fault::PostgresKilled => kills::postgres(stage, round).await,
        Fault::ReconcilerStopped => stops::reconciler(stage, &mut dice).await,
        Fault::SentinelFailover => failovers::sentinel(stage, &mut dice).await,
        Fault::ClusterMasterKilled => failovers::cluster(stage, &mut dice).await,
        Fault::RedisCut | Fault::LedgerCut => cuts::cut(stage, round, &mut dice).await,
        Fault::LedgerDiskFull => disk_full(stage, round).await,
        Fault::RedisOutOfMemory => out_of_memory(stage, round, &mut dice).await,
        Fault::LockClockJump => clock_jump(stage, round, &mut dice).await,
    }
}

/// Starts a killed master again: it takes itself for one still, until it is told otherwise.
pub async fn come_back(stage: &mut Stage, server: Option<usize>) -> Result<()> {
    match (&mut stage.redis, server) {
        (StockServers::Sentinel(group), Some(server)) => group.restart_as_replica(server).await?,
        (StockServers::Cluster(cluster), Some(server)) => {
            cluster.nodes_mut()[server].restart().await?
        }
        _ => {}
    }
    Ok(())
}

async fn disk_full(stage: &mut Stage, round: &Round) -> Result<Injected> {
    let lasts = round.lasts.max(Duration::from_millis(500));
    let disk = stage
        .ledger
        .disk()
        .context("this stage has no small disk")?;
    let bytes = disk.fill()?;
    sleep(lasts).await;
    disk.make_room()?;
    let mut story = format!("the last {bytes} bytes of the ledger's disk were taken for {lasts:?}");
    if let LedgerServer::Postgres { server, .. } = &mut stage.ledger
        && server.has_ended()
    {
        // It ends when it cannot write ahead. Whoever runs it makes room and starts it again.
        server.restart().await?;
        story += ", and PostgreSQL, which had ended, was started again";
    }
    Ok(Injected::now(story))
}

async fn out_of_memory(stage: &mut Stage, round: &Round, dice: &mut StdRng) -> Result<Injected> {
    let server = match &stage.redis {
        StockServers::Server(server) => server,
        StockServers::Sentinel(group) => &group.servers()[group.master().await?],
        StockServers::Cluster(cluster) => &cluster.nodes()[cluster
            .until_writable(dice.random_range(0..cluster.masters()))
            .await?],
    };
    server.run_out_of_memory().await?;
    sleep(round.lasts).await;
    server.get_memory_back().await?;
    Ok(Injected::now(format!(
        "the Redis server on port {} had no memory left for {:?}",
        server.port(),
        round.lasts
    )))
}

async fn clock_jump(stage: &mut Stage, round: &Round, dice: &mut StdRng) -> Result<Injected> {
    let node = dice.random_range(0..stage.locks.len());
    let clock: &Clock = stage.locks[node]
        .clock
        .as_ref()
        .context("this stage has no clocks that jump")?;
    let by_ms =
        dice.random_range(1_000..3_600_000_i64) * if dice.random_bool(0.5) { 1 } else { -1 };
    clock.set(by_ms)?;
    sleep(round.lasts).await;
    clock.set(0)?;
    Ok(Injected::now(format!(
        "the clock of lock node {node} was {by_ms} ms off for {:?}",
        round.lasts
    )))
}
