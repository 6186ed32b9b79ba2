//! A lock in the database that lasts for ever: a row that is there while somebody is inside, and somebody who dies inside.

pub(crate) mod job;

use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;
use sqlx::{Connection, PgConnection};
use testbed::Clock;

use self::job::{INSIDE, Lock, READY, SCHEMA, Task};
use crate::{
    actor::{Actor, Role},
    case::{Case, Story, Way},
    evidence::Evidence,
    stage::Stage,
    timeline::{Doing, Event},
    what_if::Knob,
};

const LEASE: Duration = Duration::from_secs(20);
/// How far the clock of the third job is ahead of the others.
const AHEAD: Duration = Duration::from_secs(180);

/// The case.
pub struct DbLockForever;

const STORY: &str = "a row is the lock";
const UNTIL: &str = "lock_until";
const UNTIL_AHEAD: &str = "lock_until, and a wrong clock";
const DATABASE_TIME: &str = "lock_until by database time";
const ADVISORY: &str = "advisory lock";

#[async_trait]
impl Case for DbLockForever {
    fn name(&self) -> &'static str {
        "db-lock-forever"
    }

    fn story(&self) -> Story {
        Story {
            title: "The lock of a dead process",
            told: "A job must run on one machine at a time. Whoever inserts a row with the job's name has the lock, the primary key keeps all \
                   others out, and the row is deleted at the end. One night the process is killed in the middle: the row stays, nobody can \
                   insert it, and the job never runs again until somebody deletes the row by hand. ShedLock's answer is a column that says \
                   until when; and then it matters whose clock says so.",
            sources: &[
                (
                    "MySQL's unique key as a distributed lock, and its traps (in Chinese)",
                    "http://xfxia.com/101749.html",
                ),
                (
                    "ShedLock: Node time is not synchronized, Jdbc lock will fail",
                    "https://github.com/lukas-krecan/ShedLock/issues/231",
                ),
                ("ShedLock", "https://github.com/lukas-krecan/ShedLock"),
            ],
            schedule: "Job 1 gets the lock and is killed (SIGKILL) inside. Job 2 wants it, and waits for two leases at most. While job 2 is \
                       inside, well within its lease, job 3 tries once; where a clock is wrong, it is job 3's, three minutes ahead.",
            instead: "Let a lock end by itself: with the connection of its holder (an advisory lock), or at a time that one clock decides, the \
                      database's. A lease can run out under a holder that lives, so what is written under it still needs a version or a fence.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                STORY,
                "INSERT to lock, DELETE to unlock; the holder is killed",
                "nobody else may delete the row, and its owner is dead",
            ),
            Way::holds(
                UNTIL,
                "the row says until when, by the application's clock; UPDATE ... WHERE lock_until <= now",
                "the dead one's lease ends, and the clocks agree",
            ),
            Way::does_not_help(
                UNTIL_AHEAD,
                "the same, and one machine's clock is three minutes ahead",
                "by its clock every lease has ended, the one of the living holder too",
            ),
            Way::holds(
                DATABASE_TIME,
                "the same by the database's clock, as ShedLock's usingDbTime; the machine's clock is as wrong as before",
                "there is one clock, so nobody can be ahead of it",
            ),
            Way::holds(
                ADVISORY,
                "the database's own lock, pg_try_advisory_lock, with the wrong clock",
                "it ends with the connection of the dead one at once, and asks no clock",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Lease]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let (lock, ahead) = match way {
            STORY => (Lock::Row, AHEAD),
            UNTIL => (Lock::UntilByApplication, Duration::ZERO),
            UNTIL_AHEAD => (Lock::UntilByApplication, AHEAD),
            DATABASE_TIME => (Lock::UntilByDatabase, AHEAD),
            ADVISORY => (Lock::Advisory, AHEAD),
            _ => bail!("no such way: {way}"),
        };
        play(stage, lock, ahead).await
    }
}

async fn play(stage: &Stage, lock: Lock, ahead: Duration) -> Result<Evidence> {
    let (database_url, lease) = (
        stage.database().await?,
        stage.what_if.lease.unwrap_or(LEASE),
    );
    sqlx::raw_sql(SCHEMA)
        .execute(&mut PgConnection::connect(&database_url).await?)
        .await?;
    let clock = Clock::new().await?;
    clock.set(i64::try_from(stage.pace.real(ahead).as_millis())?)?;
    let lease_ms = u64::try_from(lease.as_millis())?;
    let task = |n: usize| Task {
        database_url: database_url.clone(),
        name: format!("job-{n}"),
        lock,
        lease_ms,
        speed: stage.pace.speed(),
        tries_once: n == 3,
    };
    let mut first = Actor::start(stage, "job 1", Role::SettlementJob, &task(1)).await?;
    let mut second = Actor::start(stage, "job 2", Role::SettlementJob, &task(2)).await?;
    let mut third = Actor::start_with(
        stage,
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
    stage.pace.sleep(lease / 4).await;
    first.kill().await?;

    let came = tokio::time::timeout(stage.pace.real(lease * 2), second.until(INSIDE)).await;
    match came {
        Ok(came) => {
            came?;
            stage.pace.sleep(lease / 4).await;
        }
        Err(_) => second
            .lane()
            .notes(Event::Harm, "nobody will ever unlock it"),
    }
    if let crate::actor::Stop::At(_) = third.next().await? {
        third.lane().notes(Event::Harm, "inside as well");
    }
    stage.pace.sleep(lease / 8).await;
    let timeline = &stage.timeline;
    let evidence = Evidence::new()
        .holders(timeline.holders_at_once())
        .stuck(timeline.longest(Doing::Waiting));
    Ok(evidence
        .judge_holders()
        .judge_stuck(lease.as_secs_f64() * 1.5))
}
