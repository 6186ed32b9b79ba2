//! A holder is stopped past its lease, resumes, and writes.

use std::time::Duration;

use anyhow::Result;

use super::keeper::{Check, DECIDED, Keeping, Kept, Locks, Row, Work, keeper};
use crate::{
    case::Case,
    measurements::{Measure, Measurements},
    test_env::TestEnv,
    timeline::Event,
    what_if::Knob,
};

const LEASE: Duration = Duration::from_secs(20);
/// Last token before the first holder's.
const LAST_TOKEN_BEFORE: i64 = 32;
const SHELF_UNITS: u64 = 10;
const REMOVED_UNITS: u64 = 3;

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("pause", include_str!("pause.toml"))
        .knobs(&[Knob::Stock, Knob::Lease])
        .faulty("no check", |env| Box::pin(run(env, false, Check::Nothing)))
        .does_not_help("lease check before the write", |env| {
            Box::pin(run(env, true, Check::Nothing))
        })
        .does_not_help("version", |env| Box::pin(run(env, false, Check::Version)))
        .holds("fence", |env| Box::pin(run(env, false, Check::Fence)))
        .holds("fence and version", |env| {
            Box::pin(run(env, false, Check::Claim))
        })
}

async fn run(env: &TestEnv, checks_lease: bool, check: Check) -> Result<Measurements> {
    let keeping = Keeping {
        work: Work::Recount,
        checks_lease,
        check,
    };
    let lease = env.what_if.lease.unwrap_or(LEASE);
    let units = env.what_if.stock.unwrap_or(SHELF_UNITS);
    let row = Row::create(env, units).await?;
    let redis = env.redis().await?;
    let locks = Locks::OneServer {
        url: redis.url(),
        after: LAST_TOKEN_BEFORE,
    };
    let mut one = keeper(env, &row, 1, lease, locks.clone(), keeping).await?;
    let mut two = keeper(env, &row, 2, lease, locks, keeping).await?;
    one.until(DECIDED).await?;
    let stopped = one.pause().await?;
    let left = units - REMOVED_UNITS.min(units / 2);
    row.fill_shelf(left).await?;
    env.timeline
        .lane("the shelf")
        .notes(Event::Note, format!("{} units removed", units - left));
    two.finish::<Kept>().await?;
    row.stock().await?;
    one.resume(stopped).await?;
    one.finish::<Kept>().await?;
    // The shop sells the number of units in the row.
    let sold = row.stock().await?;
    let measurements =
        Measurements::of(&env.timeline).judge_sale(left, sold, left.saturating_sub(sold));
    Ok(measurements.judge(Measure::ZombieWrites, row.zombie_writes().await?, 0))
}
