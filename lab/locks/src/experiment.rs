//! One experiment: one backend under one fault.
//!
//! No schedule depends on a race. Where a lease has to end, the schedule waits for it; where no
//! lease may end, the lease is longer than the experiment. If the machine was too slow for that,
//! the experiment is repeated.

mod applicability;
mod counts;
mod schedule;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::timeout;

pub use applicability::not_applicable;
pub use counts::Counts;

use self::{applicability::lease_for, schedule::Experiment};
use crate::{backend::Backend, env::TestEnv, fault::Fault};

/// How often an experiment is tried on a machine that is too slow.
const ATTEMPTS_MAX: usize = 8;
/// Longest time for one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs an experiment.
pub(crate) async fn run(env: &TestEnv, backend: Backend, fault: Fault) -> Result<Counts> {
    for _ in 0..ATTEMPTS_MAX {
        let counts = timeout(ATTEMPT_TIMEOUT, attempt(env, backend, fault))
            .await
            .with_context(|| format!("experiment did not end within {ATTEMPT_TIMEOUT:?}"))?;
        if let Some(counts) = counts? {
            return Ok(counts);
        }
    }
    bail!(
        "machine too slow: in {ATTEMPTS_MAX} attempts a lease of {:?} ended before the schedule allowed it",
        lease_for(backend, fault)
    )
}

/// `None`: the machine was too slow for the attempt to mean anything.
async fn attempt(env: &TestEnv, backend: Backend, fault: Fault) -> Result<Option<Counts>> {
    let experiment = Experiment::set_up(env, backend, fault).await?;
    match fault {
        Fault::Pause => experiment.pause().await,
        Fault::Failover | Fault::Restart | Fault::Clock => experiment.break_server().await,
        Fault::Partition => experiment.partition().await,
        Fault::LostAnswer => experiment.lose_response().await,
        Fault::Kill => experiment.kill().await,
    }
}
