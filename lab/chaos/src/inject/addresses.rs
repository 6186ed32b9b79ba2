//! Another server answers at an address: a new master, or a standby that only reads.
//!
//! The connections to the server before stay. A process learns only from refusals that it is at the
//! wrong server.

use std::{mem, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use testbed::Proxy;
use tokio::time::sleep;

use super::Injected;
use crate::{
    env::{LedgerServer, Process, STOCKADE, StockServers, TestEnv, start_replica},
    plan::Round,
};

/// Time for which the address of the ledger leads to the standby, so that pools fill with
/// connections to it.
const STANDBY_MIN: Duration = Duration::from_secs(1);

/// A planned failover, in which the old master stays up as a replica. No acknowledged write is
/// lost, as in the maintenance of a managed service.
pub(super) async fn failover(
    env: &mut TestEnv,
    round: &Round,
    rng: &mut StdRng,
) -> Result<Injected> {
    let Some((old, new)) = env.redis.hand_over(rng).await? else {
        return failover_of_one_server(env, round).await;
    };
    let stay = env.redis.all()[old].connections_of(&STOCKADE).await?;
    Ok(Injected::now(format!(
        "server {old} handed its role over to server {new}, and stays up with {stay} connections"
    )))
}

/// The address leads to the old master for a while after the failover, as a name does. Then new
/// connections reach the new one.
async fn failover_of_one_server(env: &mut TestEnv, round: &Round) -> Result<Injected> {
    let StockServers::Server(redis) = &mut env.redis else {
        bail!("this environment has more than one Redis server")
    };
    let new = start_replica(redis, env.redis_clock.as_ref())
        .await
        .context("the replica could not be started")?;
    redis.hand_over_to(&new).await?;
    sleep(round.lasts).await;
    lead(&env.processes, new.port(), redis_proxy)?;
    let old = mem::replace(redis, new);
    let stay = old.connections_of(&STOCKADE).await?;
    let injected = Injected::now(format!(
        "Redis handed its role over to a replica, which its address names after {:?}; the old master stays up with {stay} connections",
        round.lasts
    ));
    env.former_redis = Some(old);
    Ok(injected)
}

/// The address of the ledger leads to a standby, and the connections to the primary are cut. Then
/// it leads to the primary again, and the connections to the standby stay.
pub(super) async fn ledger_standby(env: &mut TestEnv, round: &Round) -> Result<Injected> {
    let LedgerServer::Postgres { server, .. } = &env.ledger else {
        bail!("this environment has no PostgreSQL")
    };
    let standby = server
        .standby()
        .await
        .context("the standby could not be started")?;
    lead(&env.processes, standby.port(), ledger_proxy)?;
    let cut = env.ledger.terminate_connections().await?;
    ensure!(cut > 0, "no process was connected to the ledger");
    let lasts = (round.lasts * 2).max(STANDBY_MIN);
    sleep(lasts).await;
    lead(&env.processes, server.port(), ledger_proxy)?;
    let injected = Injected::now(format!(
        "{cut} connections to the ledger were cut, and new ones led to a standby for {lasts:?}"
    ));
    env.ledger_standby = Some(standby);
    Ok(injected)
}

fn redis_proxy(process: &Process) -> Option<&Proxy> {
    process.redis_proxy.as_ref()
}

fn ledger_proxy(process: &Process) -> Option<&Proxy> {
    process.ledger_proxy.as_ref()
}

/// Leads the new connections of every process to the server on this port.
fn lead(processes: &[Process], port: u16, proxy: fn(&Process) -> Option<&Proxy>) -> Result<()> {
    for process in processes {
        let proxy = proxy(process).context("a process has no proxy to the store")?;
        proxy.set_target(port);
    }
    Ok(())
}
