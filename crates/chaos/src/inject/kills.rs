//! kill -9, and a new start after a while.

use anyhow::{Context, Result, bail};
use rand::{RngExt, rngs::StdRng};
use tokio::time::sleep;

use super::Injected;
use crate::{
    fault::Fault,
    plan::Round,
    stage::{LedgerServer, Role, Stage, StockServers},
};

pub(super) async fn processes(
    stage: &mut Stage,
    round: &Round,
    dice: &mut StdRng,
) -> Result<Injected> {
    let victims = match round.fault {
        Fault::OrderServiceKilled => some(stage, Role::Order, dice),
        Fault::RecorderKilled => some(stage, Role::Recorder, dice),
        Fault::ReconcilerKilled => some(stage, Role::Reconciler, dice),
        _ => (0..stage.processes.len()).collect(),
    };
    for victim in &victims {
        stage.processes[*victim].daemon.kill().await?;
    }
    sleep(round.lasts).await;
    for victim in &victims {
        stage.processes[*victim].daemon.restart().await?;
    }
    let names: Vec<_> = victims
        .iter()
        .map(|victim| stage.processes[*victim].name.clone())
        .collect();
    Ok(Injected::now(format!(
        "{} killed, and started again after {:?}",
        names.join(", "),
        round.lasts
    )))
}

/// One of them, and every third time all of them.
fn some(stage: &Stage, role: Role, dice: &mut StdRng) -> Vec<usize> {
    if dice.random_ratio(1, 3) {
        stage.with_role(role)
    } else {
        vec![stage.one_with_role(role, dice)]
    }
}

pub(super) async fn redis(stage: &mut Stage, round: &Round) -> Result<Injected> {
    let StockServers::Server(server) = &mut stage.redis else {
        bail!("this stage has more than one Redis server")
    };
    server.kill().await?;
    sleep(round.lasts).await;
    server
        .restart()
        .await
        .context("the Redis server did not come back")?;
    Ok(Injected::now(format!(
        "Redis killed, and started again after {:?}",
        round.lasts
    )))
}

pub(super) async fn postgres(stage: &mut Stage, round: &Round) -> Result<Injected> {
    let LedgerServer::Postgres { server, .. } = &mut stage.ledger else {
        bail!("this stage has no PostgreSQL")
    };
    server.kill().await?;
    sleep(round.lasts).await;
    server
        .restart()
        .await
        .context("PostgreSQL did not come back")?;
    Ok(Injected::now(format!(
        "PostgreSQL killed, and started again after {:?}",
        round.lasts
    )))
}
