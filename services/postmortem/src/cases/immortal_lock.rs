//! The immortal lock: `SETNX`, then `EXPIRE`, and a crash between the two.

use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;

use super::till::{Free, Locking, OVERDUE, READ, REFUSED, Shop, TAKEN, Take, come_to};
use crate::{
    case::{Case, Story, Way},
    evidence::Evidence,
    stage::Stage,
    timeline::Doing,
    what_if::Knob,
};

/// The case.
pub struct ImmortalLock;

const STORY: &str = "SETNX, then EXPIRE";
const TIME_IN_THE_VALUE: &str = "the time in the value";
const SET_NX_PX: &str = "SET NX PX";

const LEASE: Duration = Duration::from_secs(15);
/// How many leases the others wait before they give up, and how many a lock may outlive its holder.
const PATIENCE: u32 = 4;
const AT_MOST: u32 = 3;
const UNITS: u64 = 1;

#[async_trait]
impl Case for ImmortalLock {
    fn name(&self) -> &'static str {
        "immortal-lock"
    }

    fn story(&self) -> Story {
        Story {
            title: "A lock that outlives its holder for ever",
            told: "A worker took its lock with SETNX and gave it a lifetime with EXPIRE, a command later. Deployments, crashes and the \
                   out-of-memory killer find the moment between the two: the lock then has no lifetime, its holder is dead, and nobody gets \
                   it until a human deletes the key. A user of sidekiq-grouping met it twice in three months; it was reported to ShedLock, Beaker \
                   and Laravel Horizon as well.",
            sources: &[
                (
                    "sidekiq-grouping: atomic lock with expiry to avoid perma-locked batches",
                    "https://github.com/gzigzigzeo/sidekiq-grouping/pull/23",
                ),
                (
                    "ShedLock: dead lock in redis lock provider",
                    "https://github.com/lukas-krecan/ShedLock/issues/65",
                ),
                (
                    "Beaker: a true way to set redis expire time",
                    "https://github.com/bbangert/beaker/pull/164",
                ),
                (
                    "Laravel Horizon: Lock::get() uses non-atomic SETNX + EXPIRE",
                    "https://github.com/laravel/horizon/issues/1738",
                ),
                (
                    "Redis: SETNX, and how its old locking pattern is got wrong",
                    "https://redis.io/docs/latest/commands/setnx/",
                ),
            ],
            schedule: "One unit is left, and a lock is good for 15 s. Till 1 is killed (SIGKILL) right after it has taken the lock. Tills 2 \
                       and 3 want the lock, too, and try again and again, for 60 s at most.",
            instead: "Take the lock and give it its lifetime in one command: SET key value NX PX lifetime. Let the server's clock end it, \
                      and do not judge by values whether somebody else's lock is over.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                STORY,
                "SETNX key value; EXPIRE key 15",
                "who dies between the two leaves a lock without a lifetime, and nobody ever gets it",
            ),
            Way::does_not_help(
                TIME_IN_THE_VALUE,
                "SETNX key time; who reads that the time is over sends DEL and SETNX",
                "two read that it is over, and the second one deletes what the first one has just taken",
            ),
            Way::holds(
                SET_NX_PX,
                "SET key value NX PX 15000",
                "there is no moment in which the lock has no lifetime",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Lease]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let take = match way {
            STORY => Take::SetNxThenExpire,
            TIME_IN_THE_VALUE => Take::TimeInTheValue,
            SET_NX_PX => Take::SetNxPx,
            _ => bail!("no such way: {way}"),
        };
        play(
            stage,
            Locking {
                take,
                renewed: false,
                free: Free::CompareAndDelete,
            },
        )
        .await
    }
}

async fn play(stage: &Stage, locking: Locking) -> Result<Evidence> {
    let lease = stage.what_if.lease.unwrap_or(LEASE);
    let shop = Shop::open(stage, UNITS).await?;
    let mut one = shop.till(1, lease, locking).await?;
    let mut two = shop.till(2, lease, locking).await?;
    let mut three = shop.till(3, lease, locking).await?;
    one.until(TAKEN).await?;
    one.kill().await?;
    let dead = stage
        .timeline
        .lane("the lock")
        .is(Doing::Stalled, "locked by till 1, which is dead");
    two.until(REFUSED).await?;
    three.until(REFUSED).await?;
    if let Some(mut at) = shop
        .comes_to(&mut two, &[OVERDUE, READ], lease * PATIENCE)
        .await?
    {
        // Till 3 tries once more before till 2 has done anything else: it sees what till 2 has seen, or that till 2 was faster.
        let mut third = come_to(&mut three, &[OVERDUE, REFUSED]).await?;
        if at == OVERDUE {
            at = come_to(&mut two, &[READ]).await?;
        }
        drop(dead);
        if third == OVERDUE {
            third = come_to(&mut three, &[READ, REFUSED]).await?;
        }
        anyhow::ensure!(at == READ && third != OVERDUE, "both tills have gone on");
        two.finish::<bool>().await?;
        shop.look().await?;
        three.finish::<bool>().await?;
    }
    let (sold, left) = shop.count().await?;
    let evidence = Evidence::new()
        .sold(UNITS, sold)
        .stranded(left)
        .holders(stage.timeline.holders_at_once());
    let evidence = evidence.stuck(stage.timeline.longest(Doing::Waiting));
    Ok(evidence
        .judge_oversold()
        .judge_stranded()
        .judge_holders()
        .judge_stuck((lease * AT_MOST).as_secs_f64()))
}
