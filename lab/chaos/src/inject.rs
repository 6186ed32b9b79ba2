//! Injects faults, and ends them as an operator would. The system must recover on its own.

mod addresses;
mod beside;
mod clients;
mod clocks;
mod cuts;
mod failovers;
mod growth;
mod kills;
mod logins;
mod stops;
mod subscribers;

use std::time::Duration;

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use tokio::time::{Instant, sleep};

use self::beside::Beside;
use crate::{
    env::{LedgerServer, TestEnv},
    fault::Fault,
    plan::Round,
};

/// A fault that was injected and has ended.
#[derive(Debug)]
pub struct Injected {
    /// When the fault ended. The time to heal starts here.
    pub ended: Instant,
    /// What was done to which servers or processes.
    pub description: String,
    /// The killed master that must be restarted as a replica while the system heals.
    pub killed_master: Option<usize>,
    /// What was wrong during the fault.
    pub findings: Vec<String>,
}

impl Injected {
    fn now(description: impl Into<String>) -> Self {
        Self {
            ended: Instant::now(),
            description: description.into(),
            killed_master: None,
            findings: Vec::new(),
        }
    }
}

/// Injects the fault of the round, and another one of events beside it. Returns when both have
/// ended.
pub async fn inject(env: &mut TestEnv, round: &Round) -> Result<Injected> {
    let beside = Beside::begin(env, round).await?;
    let injected = inject_fault(env, round).await;
    let description = beside.end(env).await?;
    let mut injected = injected?;
    injected.description += &description;
    Ok(injected)
}

async fn inject_fault(env: &mut TestEnv, round: &Round) -> Result<Injected> {
    let mut rng = round.rng("fault");
    match round.fault {
        Fault::OrderServiceKilled
        | Fault::RecorderKilled
        | Fault::ReconcilerKilled
        | Fault::PublisherKilled
        | Fault::EverythingKilled => kills::processes(env, round, &mut rng).await,
        Fault::RedisKilled => kills::redis(env, round).await,
        Fault::PostgresKilled => kills::postgres(env, round).await,
        Fault::ReconcilerStopped => stops::reconciler(env, &mut rng).await,
        Fault::SentinelFailover => failovers::sentinel(env, &mut rng).await,
        Fault::ClusterMasterKilled => failovers::cluster(env, &mut rng).await,
        Fault::RedisCut | Fault::LedgerCut => cuts::cut(env, round, &mut rng).await,
        Fault::LedgerDiskFull => disk_full(env, round).await,
        Fault::RedisOutOfMemory => out_of_memory(env, round, &mut rng).await,
        Fault::LockClockJump => clocks::lock_node(env, round, &mut rng).await,
        Fault::ProcessClockJump | Fault::RedisClockJump | Fault::LedgerClockJump => {
            clocks::jump(env, round, &mut rng).await
        }
        Fault::SlotMigration => growth::migration(env, round, &mut rng).await,
        Fault::ReceiversFailing => subscribers::receivers(env, round, &mut rng).await,
        Fault::BrokerKilled => subscribers::brokers_killed(env, round, &mut rng).await,
        Fault::BrokerCut => subscribers::brokers_cut(env, round, &mut rng).await,
        Fault::PasswordBlip => logins::password_blip(env, round).await,
        Fault::AclLate => logins::acl_late(env, round, &mut rng).await,
        Fault::AddressFailover => addresses::failover(env, round, &mut rng).await,
        Fault::LedgerStandby => addresses::ledger_standby(env, round).await,
        Fault::SlowReader | Fault::ConnectionFlood | Fault::HalfBodies => {
            clients::inject(env, round, &mut rng).await
        }
    }
}

/// Restarts a killed master, if there is one, as a replica.
pub async fn restart_killed_master(env: &mut TestEnv, server: Option<usize>) -> Result<()> {
    match server {
        Some(server) => env.redis.restart_as_replica(server).await,
        None => Ok(()),
    }
}

async fn disk_full(env: &mut TestEnv, round: &Round) -> Result<Injected> {
    let lasts = round.lasts.max(Duration::from_millis(500));
    let disk = env
        .ledger
        .disk()
        .context("this environment has no small disk")?;
    let bytes = disk.fill()?;
    sleep(lasts).await;
    disk.make_room()?;
    let mut description =
        format!("the last {bytes} bytes of the ledger's disk were occupied for {lasts:?}");
    if let LedgerServer::Postgres { server, .. } = &mut env.ledger
        && server.has_ended()
    {
        // PostgreSQL exits if it cannot write its log. Its operator frees space and restarts it.
        server.restart().await?;
        description += ", and PostgreSQL, which had exited, was restarted";
    }
    Ok(Injected::now(description))
}

async fn out_of_memory(env: &mut TestEnv, round: &Round, rng: &mut StdRng) -> Result<Injected> {
    let server = env.redis.master(rng).await?;
    server.run_out_of_memory().await?;
    sleep(round.lasts).await;
    server.get_memory_back().await?;
    Ok(Injected::now(format!(
        "the Redis server on port {} was out of memory for {:?}",
        server.port(),
        round.lasts
    )))
}
