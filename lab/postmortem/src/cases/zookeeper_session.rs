//! A client of ZooKeeper is stopped for longer than its session.

use std::time::Duration;

use anyhow::Result;

use super::holder::{self, Check, Service, Task};
use crate::{case::Case, measurements::Measurements, test_env::TestEnv, what_if::Knob};

/// Session timeout in scenario time.
const SESSION: Duration = Duration::from_secs(30);
/// Smallest real session timeout. The server rounds to a few ticks, and a busy machine is late by
/// many.
const SESSION_MIN: Duration = Duration::from_millis(1000);

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("zookeeper-session", include_str!("zookeeper_session.toml"))
        .knobs(&[Knob::Lease])
        .faulty("the recipe", |env| Box::pin(run(env, Check::Nothing)))
        .does_not_help("ownership check before the write", |env| {
            Box::pin(run(env, Check::Ownership))
        })
        .holds("czxid as fence", |env| Box::pin(run(env, Check::Row)))
}

async fn run(env: &TestEnv, check: Check) -> Result<Measurements> {
    let session = env
        .pace
        .real(env.what_if.lease.unwrap_or(SESSION))
        .max(SESSION_MIN);
    let (servers, parent) = env.zookeeper().await?;
    let service = Service::ZooKeeper {
        servers,
        parent,
        session_ms: u64::try_from(session.as_millis())?,
    };
    let task = Task {
        service,
        database: env.database().await?,
        check,
        lease: env.pace.scenario(session).as_secs_f64(),
    };
    holder::run(env, task).await
}
