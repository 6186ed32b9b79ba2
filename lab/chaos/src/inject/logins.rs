//! Logins at Redis that fail for a while, although the password of the processes is right before
//! and after.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::{RngExt, rngs::StdRng};
use testbed::Redis;
use tokio::time::sleep;

use super::Injected;
use crate::{
    env::{STOCKADE, StockServers, TestEnv},
    plan::Round,
};

/// The password of the servers during the fault.
const OTHER_PASSWORD: &str = "another-password";
/// Longer than the first attempts to connect again, so that some of them are refused.
const LASTS_MIN: Duration = Duration::from_secs(1);

/// All servers, lock nodes too, get another password and cut the connections. Then the old password
/// is right again, as after a rotation in the wrong order.
pub(super) async fn password_blip(env: &TestEnv, round: &Round) -> Result<Injected> {
    let servers = env.redis_servers();
    for server in &servers {
        server.change_password(&STOCKADE, OTHER_PASSWORD).await?;
    }
    let lasts = lasts(round);
    sleep(lasts).await;
    for server in &servers {
        server.create_user(&STOCKADE).await?;
    }
    Ok(Injected::now(format!(
        "{} Redis servers refused the password for {lasts:?}",
        servers.len()
    )))
}

/// One master, and in one of three cases all servers, lose the user of the processes and their
/// connections. The only Redis server really restarts; of several servers, a restart would make
/// another one the master before the user could be missed.
pub(super) async fn acl_late(
    env: &mut TestEnv,
    round: &Round,
    rng: &mut StdRng,
) -> Result<Injected> {
    let victim = if rng.random_ratio(1, 3) {
        None
    } else {
        Some(a_master(env, rng).await?)
    };
    for server in victims(env, victim) {
        server.remove_user(&STOCKADE).await?;
    }
    let mut how = "lost the user";
    if let StockServers::Server(server) = &mut env.redis {
        let restarted = server.restart().await;
        restarted.context("the Redis server could not be restarted")?;
        how = "restarted without the user";
    }
    let lasts = lasts(round);
    sleep(lasts).await;
    let servers = victims(env, victim);
    for server in &servers {
        server.create_user(&STOCKADE).await?;
    }
    let who = match &*servers {
        [server] => format!("the Redis server on port {}", server.port()),
        servers => format!("{} Redis servers", servers.len()),
    };
    Ok(Injected::now(format!(
        "{who} {how}, who was created after {lasts:?}"
    )))
}

/// The index of a random master.
async fn a_master(env: &TestEnv, rng: &mut StdRng) -> Result<usize> {
    let masters = env.redis.masters().await?;
    ensure!(!masters.is_empty(), "no Redis server is a master");
    Ok(masters[rng.random_range(0..masters.len())])
}

/// One server of the stock, or every Redis server.
fn victims(env: &TestEnv, victim: Option<usize>) -> Vec<&Redis> {
    match victim {
        Some(victim) => vec![env.redis.all()[victim]],
        None => env.redis_servers(),
    }
}

fn lasts(round: &Round) -> Duration {
    (round.lasts * 2).max(LASTS_MIN)
}
