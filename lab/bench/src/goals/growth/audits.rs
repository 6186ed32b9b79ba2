//! The first audits of new items. A service is at rest when it has made them.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::{Instant, sleep};

use super::env::GrowthEnv;
use crate::cpu;

/// Longest time without one more audit.
const TIMEOUT: Duration = Duration::from_secs(600);
const INTERVAL: Duration = Duration::from_secs(1);
/// All are made if there was none for so long: with the pause of this service, each item has had its turn.
const QUIET: Duration = Duration::from_secs(10);

/// Has every item audited. Returns the milliseconds of processor time that a service needs for each new
/// item, in all stores together, once it is ready and until all are audited. `None`: there is no new item,
/// or the system does not report processor time.
pub async fn make(env: &mut GrowthEnv, settle: Duration) -> Result<Option<f64>> {
    let items = env.database.unaudited().await?;
    env.restart_to_audit().await?;
    let before = used_us(env)?;
    until_made(env, QUIET.min(settle)).await?;
    let used = before.zip(used_us(env)?).filter(|_| items > 0);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    Ok(used.map(|(before, after)| (after - before) / 1000.0 / items as f64))
}

async fn until_made(env: &GrowthEnv, quiet: Duration) -> Result<()> {
    let (mut last, mut since) = (String::new(), Instant::now());
    loop {
        let (missing, audit) = (
            env.database.unaudited().await?,
            env.database.last_audit().await?,
        );
        if audit != last {
            (last, since) = (audit, Instant::now());
        }
        if missing == 0 && since.elapsed() >= quiet {
            return Ok(());
        }
        ensure!(
            since.elapsed() < TIMEOUT,
            "{missing} items were not audited"
        );
        sleep(INTERVAL).await;
    }
}

/// Microseconds of all processes since they began.
fn used_us(env: &GrowthEnv) -> Result<Option<f64>> {
    if !cpu::is_available() {
        return Ok(None);
    }
    let processes = [
        Some(env.service_pid()?),
        Some(env.redis_pid()),
        env.ledger_pid(),
    ];
    let used = processes.into_iter().flatten().map(cpu::used_us);
    used.sum::<Result<f64>>().map(Some)
}
