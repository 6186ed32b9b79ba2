//! A client of etcd is stopped for longer than its lease.

use std::time::Duration;

use anyhow::Result;

use super::{
    etcd_lock::put,
    holder::{self, Check, Service, Task},
};
use crate::{case::Case, measurements::Measurements, test_env::TestEnv, what_if::Knob};

/// Lease in scenario time. etcd counts in whole seconds at any speed.
const LEASE: Duration = Duration::from_secs(30);

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("etcd-lease", include_str!("etcd_lease.toml"))
        .knobs(&[Knob::Lease])
        .faulty("etcd's lock", |env| Box::pin(run(env, Check::Nothing)))
        .does_not_help("ownership check before the write", |env| {
            Box::pin(run(env, Check::Ownership))
        })
        .holds("revision as fence", |env| Box::pin(run(env, Check::Row)))
        .holds("guarded transaction", |env| {
            Box::pin(run(env, Check::Service))
        })
}

async fn run(env: &TestEnv, check: Check) -> Result<Measurements> {
    let lease = env.pace.real(env.what_if.lease.unwrap_or(LEASE));
    let lease_s = lease.as_secs() + u64::from(lease.subsec_nanos() > 0);
    let (url, name) = env.etcd().await?;
    put(&url, &format!("{name}/stock"), 1).await?;
    let task = Task {
        service: Service::Etcd { url, name, lease_s },
        database: env.database().await?,
        check,
        lease: env
            .pace
            .scenario(Duration::from_secs(lease_s))
            .as_secs_f64(),
    };
    holder::run(env, task).await
}
