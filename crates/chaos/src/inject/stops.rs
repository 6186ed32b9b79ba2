//! A process that stops in the middle and wakes up when its time is over.

use std::time::Duration;

use anyhow::Result;
use rand::{RngExt, rngs::StdRng};
use tokio::time::{Instant, sleep};

use super::Injected;
use crate::stage::{LOCK_LEASE_MS, Role, Stage};

/// Longer than the lease of the item's lock, so that somebody else has it by then.
const PAST_THE_LEASE: Duration = Duration::from_millis(LOCK_LEASE_MS + 1500);
/// How long to wait for somebody to hold a lock. Without one it is only a pause.
const LOCKED_WITHIN: Duration = Duration::from_millis(1500);

/// One reconciler, at a moment when one holds a lock, if there is such a moment soon.
pub(super) async fn reconciler(stage: &mut Stage, dice: &mut StdRng) -> Result<Injected> {
    let both = dice.random_ratio(1, 4);
    let victims = if both {
        stage.with_role(Role::Reconciler)
    } else {
        vec![stage.one_with_role(Role::Reconciler, dice)]
    };
    let locked = until_locked(stage).await;
    for victim in &victims {
        stage.processes[*victim].daemon.pause().await?;
    }
    sleep(PAST_THE_LEASE).await;
    for victim in &victims {
        stage.processes[*victim].daemon.resume().await?;
    }
    let names: Vec<_> = victims
        .iter()
        .map(|victim| stage.processes[*victim].name.clone())
        .collect();
    let when = if locked {
        "while a lock was held"
    } else {
        "while no lock was held"
    };
    Ok(Injected::now(format!(
        "{} stopped for {PAST_THE_LEASE:?} {when}",
        names.join(", ")
    )))
}

async fn until_locked(stage: &Stage) -> bool {
    let until = Instant::now() + LOCKED_WITHIN;
    while Instant::now() < until {
        if is_locked(stage).await.unwrap_or(false) {
            return true;
        }
        sleep(Duration::from_millis(1)).await;
    }
    false
}

/// Whether something on a lock node will expire: a lock does.
async fn is_locked(stage: &Stage) -> redis::RedisResult<bool> {
    let client = redis::Client::open(stage.locks[0].server.url())?;
    let info: redis::InfoDict = redis::cmd("INFO")
        .arg("keyspace")
        .query_async(&mut client.get_multiplexed_async_connection().await?)
        .await?;
    let keyspace: Option<String> = info.get("db0");
    Ok(keyspace.is_some_and(|keyspace| !keyspace.contains("expires=0")))
}
