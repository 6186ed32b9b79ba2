//! Processor time without any request.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use tokio::time::sleep;

use super::env::GrowthEnv;
use crate::cpu;

/// Percent of a core, while nothing was asked.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Idle {
    /// The service, with every role. With SQLite, the ledger is part of it.
    pub service: f64,
    /// Redis.
    pub redis: f64,
    /// The ledger's server with all its processes. SQLite has none.
    pub ledger: Option<f64>,
}

/// Counts for this time, after a pause. `None`: the system does not report processor time.
pub async fn measure(env: &GrowthEnv, settle: Duration, time: Duration) -> Result<Option<Idle>> {
    if !cpu::is_available() {
        return Ok(None);
    }
    sleep(settle).await;
    let (began, before) = (Instant::now(), Used::read(env)?);
    sleep(time).await;
    let (after, took) = (Used::read(env)?, began.elapsed());
    let percent = |before: f64, after: f64| (after - before) / took.as_secs_f64() / 1e4;
    Ok(Some(Idle {
        service: percent(before.service, after.service),
        redis: percent(before.redis, after.redis),
        ledger: before
            .ledger
            .zip(after.ledger)
            .map(|(before, after)| percent(before, after)),
    }))
}

/// Microseconds since the processes began.
struct Used {
    service: f64,
    redis: f64,
    ledger: Option<f64>,
}

impl Used {
    fn read(env: &GrowthEnv) -> Result<Self> {
        Ok(Self {
            service: cpu::used_us(env.service_pid()?)?,
            redis: cpu::used_us(env.redis_pid())?,
            ledger: env.ledger_pid().map(cpu::used_us).transpose()?,
        })
    }
}
