//! A lock in the database that never ends: a row that exists while a process is inside, and a
//! process that is killed inside.

pub(crate) mod job;

use std::time::Duration;

use anyhow::Result;
use sqlx::{Connection, PgConnection};
use testbed::Clock;

use self::job::{INSIDE, Lock, READY, SCHEMA, Task};
use crate::{
    actor::{Actor, Role},
    case::Case,
    measurements::Measurements,
    test_env::TestEnv,
    timeline::Event,
    what_if::Knob,
};

const LEASE: Duration = Duration::from_secs(20);
/// Difference between the clock of the third job and the other clocks.
const CLOCK_AHEAD: Duration = Duration::from_secs(180);

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("db-lock-forever", include_str!("db_lock_forever.toml"))
        .knobs(&[Knob::Lease])
        .faulty("row as lock", |env| {
            Box::pin(run(env, Lock::Row, CLOCK_AHEAD))
        })
        .holds("lock_until", |env| {
            Box::pin(run(env, Lock::UntilByApplication, Duration::ZERO))
        })
        .does_not_help("lock_until, wrong clock", |env| {
            Box::pin(run(env, Lock::UntilByApplication, CLOCK_AHEAD))
        })
        .holds("lock_until by database time", |env| {
            Box::pin(run(env, Lock::UntilByDatabase, CLOCK_AHEAD))
        })
        .holds("advisory lock", |env| {
            Box::pin(run(env, Lock::Advisory, CLOCK_AHEAD))
        })
}

async fn run(env: &TestEnv, lock: Lock, ahead: Duration) -> Result<Measurements> {
    let (database_url, lease) = (env.database().await?, env.what_if.lease.unwrap_or(LEASE));
    sqlx::raw_sql(SCHEMA)
        .execute(&mut PgConnection::connect(&database_url).await?)
        .await?;
    let clock = Clock::new().await?;
    clock.set(i64::try_from(env.pace.real(ahead).as_millis())?)?;
    let lease_ms = u64::try_from(lease.as_millis())?;
    let task = |n: usize| Task {
        database_url: database_url.clone(),
        name: format!("job-{n}"),
        lock,
        lease_ms,
        speed: env.pace.speed(),
        tries_once: n == 3,
    };
    let mut first = Actor::start(env, "job 1", Role::SettlementJob, &task(1)).await?;
    let mut second = Actor::start(env, "job 2", Role::SettlementJob, &task(2)).await?;
    let mut third = Actor::start_with(
        env,
        "job 3",
        Role::SettlementJob,
        &task(3),
        clock.variables().await?,
    )
    .await?;
    for job in [&mut first, &mut second, &mut third] {
        job.until(READY).await?;
    }
    if !ahead.is_zero() {
        third.lane().notes(
            Event::Fault,
            format!("its clock is {} s ahead", ahead.as_secs()),
        );
    }
    first.until(INSIDE).await?;
    env.pace.sleep(lease / 4).await;
    first.kill().await?;

    let entered = tokio::time::timeout(env.pace.real(lease * 2), second.until(INSIDE)).await;
    match entered {
        Ok(entered) => {
            entered?;
            env.pace.sleep(lease / 4).await;
        }
        Err(_) => second
            .lane()
            .notes(Event::Harm, "the lock is never released"),
    }
    if let crate::actor::Stop::At(_) = third.next().await? {
        third.lane().notes(Event::Harm, "inside as well");
    }
    env.pace.sleep(lease / 8).await;
    Ok(Measurements::of(&env.timeline)
        .judge_holders()
        .judge_stuck(lease.as_secs_f64() * 1.5))
}
