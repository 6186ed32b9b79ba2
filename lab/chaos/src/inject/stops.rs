//! A process that is stopped in the middle of its work, and continues after its lease has expired.

use std::time::Duration;

use anyhow::Result;
use rand::{RngExt, rngs::StdRng};
use tokio::time::{Instant, sleep};

use super::Injected;
use crate::env::{LOCK_LEASE_MS, Role, TestEnv};

/// Longer than the lease of the item lock, so that the other reconciler acquires the lock.
const STOP_DURATION: Duration = Duration::from_millis(LOCK_LEASE_MS + 1500);
/// Limit for waiting until a lock is held. Without one the stop is only a pause.
const LOCKED_TIMEOUT: Duration = Duration::from_millis(1500);

/// Stops one reconciler, or both, while a lock is held, if one is held soon.
pub(super) async fn reconciler(env: &mut TestEnv, rng: &mut StdRng) -> Result<Injected> {
    let both = rng.random_ratio(1, 4);
    let victims = if both {
        env.with_role(Role::Reconciler)
    } else {
        vec![env.one_with_role(Role::Reconciler, rng)]
    };
    let locked = wait_until_locked(env).await;
    for victim in &victims {
        env.processes[*victim].daemon.pause().await?;
    }
    sleep(STOP_DURATION).await;
    for victim in &victims {
        env.processes[*victim].daemon.resume().await?;
    }
    let when = if locked {
        "while a lock was held"
    } else {
        "while no lock was held"
    };
    Ok(Injected::now(format!(
        "{} stopped for {STOP_DURATION:?} {when}",
        env.names(&victims)
    )))
}

async fn wait_until_locked(env: &TestEnv) -> bool {
    let deadline = Instant::now() + LOCKED_TIMEOUT;
    while Instant::now() < deadline {
        if is_locked(env).await.unwrap_or(false) {
            return true;
        }
        sleep(Duration::from_millis(1)).await;
    }
    false
}

/// Whether the first lock node has a key with an expiry time. Only locks have one.
async fn is_locked(env: &TestEnv) -> redis::RedisResult<bool> {
    let client = redis::Client::open(env.locks[0].server.url())?;
    let info: redis::InfoDict = redis::cmd("INFO")
        .arg("keyspace")
        .query_async(&mut client.get_multiplexed_async_connection().await?)
        .await?;
    let keyspace: Option<String> = info.get("db0");
    Ok(keyspace.is_some_and(|keyspace| !keyspace.contains("expires=0")))
}
