//! kill -9, and a restart after a while.

use anyhow::{Context, Result, bail};
use rand::{RngExt, rngs::StdRng};
use tokio::time::sleep;

use super::Injected;
use crate::{
    env::{LedgerServer, Role, StockServers, TestEnv},
    fault::Fault,
    plan::Round,
};

pub(super) async fn processes(
    env: &mut TestEnv,
    round: &Round,
    rng: &mut StdRng,
) -> Result<Injected> {
    let victims = match round.fault {
        Fault::OrderServiceKilled => victims(env, Role::Order, rng),
        Fault::RecorderKilled => victims(env, Role::Recorder, rng),
        Fault::ReconcilerKilled => victims(env, Role::Reconciler, rng),
        Fault::PublisherKilled => victims(env, Role::Publisher, rng),
        _ => (0..env.processes.len()).collect(),
    };
    for victim in &victims {
        env.processes[*victim].daemon.kill().await?;
    }
    sleep(round.lasts).await;
    for victim in &victims {
        env.processes[*victim].daemon.restart().await?;
    }
    Ok(Injected::now(format!(
        "{} killed, and restarted after {:?}",
        env.names(&victims),
        round.lasts
    )))
}

/// One process with this role, and in one of three cases all of them.
pub(super) fn victims(env: &TestEnv, role: Role, rng: &mut StdRng) -> Vec<usize> {
    if rng.random_ratio(1, 3) {
        env.with_role(role)
    } else {
        vec![env.one_with_role(role, rng)]
    }
}

pub(super) async fn redis(env: &mut TestEnv, round: &Round) -> Result<Injected> {
    let StockServers::Server(server) = &mut env.redis else {
        bail!("this environment has more than one Redis server")
    };
    server.kill().await?;
    sleep(round.lasts).await;
    server
        .restart()
        .await
        .context("the Redis server could not be restarted")?;
    Ok(Injected::now(format!(
        "Redis killed, and restarted after {:?}",
        round.lasts
    )))
}

pub(super) async fn postgres(env: &mut TestEnv, round: &Round) -> Result<Injected> {
    let LedgerServer::Postgres { server, .. } = &mut env.ledger else {
        bail!("this environment has no PostgreSQL")
    };
    server.kill().await?;
    sleep(round.lasts).await;
    server
        .restart()
        .await
        .context("PostgreSQL could not be restarted")?;
    Ok(Injected::now(format!(
        "PostgreSQL killed, and restarted after {:?}",
        round.lasts
    )))
}
