//! The wrong release: a holder whose time is over deletes the lock of its successor.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use async_trait::async_trait;

use super::till::{BEFORE_DELETE, Free, Locking, READ, REFUSED, Shop, Take, come_to};
use crate::{
    case::{Case, Story, Way},
    evidence::Evidence,
    stage::Stage,
    timeline::{Doing, Event},
    what_if::Knob,
};

/// The case.
pub struct WrongRelease;

const STORY: &str = "DEL";
const GET_THEN_DEL: &str = "GET, then DEL";
const COMPARE_AND_DELETE: &str = "compare and delete";

const LEASE: Duration = Duration::from_secs(30);
const UNITS: u64 = 2;

#[async_trait]
impl Case for WrongRelease {
    fn name(&self) -> &'static str {
        "wrong-release"
    }

    fn story(&self) -> Story {
        Story {
            title: "A release that frees somebody else's lock",
            told: "A lock ends by time, but its holder frees it all the same when it is done, with a DEL that does not ask whose lock is there \
                   by then: the next holder's is, and a third one enters beside it. Libraries that asked first (GET, compare, DEL) found that \
                   a lock can change hands between the question and the DEL.",
            sources: &[
                (
                    "jedis-lock: don't del lockkey if it is expired",
                    "https://github.com/abelaska/jedis-lock/issues/2",
                ),
                (
                    "Spring Integration: enhancing unlock() of RedisLock with an atomic Redis operation",
                    "https://github.com/spring-projects/spring-integration/issues/8699",
                ),
                (
                    "LiveKit: make UnlockRoom atomic",
                    "https://github.com/livekit/livekit/pull/1044",
                ),
                (
                    "Redis: distributed locks with Redis",
                    "https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/",
                ),
            ],
            schedule: "Two units are left, and a lock is good for 30 s. Till 1 sells one and is stopped (SIGSTOP) just before it sends what \
                       deletes the lock, until the lock has run out and till 2 is inside and has read the stock. Then till 1 goes on, and when \
                       it is done till 3 tries to get the lock, once. After that everybody goes on.",
            instead: "Give every acquisition a value of its own, and let one script compare it and delete. That a release found nothing to \
                      delete is worth a line in the log: the work took longer than its lock.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(STORY, "finally DEL key", "it frees whatever lock is there"),
            Way::does_not_help(
                GET_THEN_DEL,
                "GET key; DEL key if the value is ours",
                "the lock runs out and is taken between the two commands, and DEL does not look again",
            ),
            Way::holds(
                COMPARE_AND_DELETE,
                "a Lua script that deletes the key if the value is ours",
                "nothing comes between the question and the DEL",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Lease]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let free = match way {
            STORY => Free::Delete,
            GET_THEN_DEL => Free::GetThenDelete,
            COMPARE_AND_DELETE => Free::CompareAndDelete,
            _ => bail!("no such way: {way}"),
        };
        play(
            stage,
            Locking {
                take: Take::SetNxPx,
                renewed: false,
                free,
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
    one.until(READ).await?;
    two.until(REFUSED).await?;
    three.until(REFUSED).await?;
    one.until(BEFORE_DELETE).await?;
    shop.look().await?;
    let stopped = one.pause().await?;
    two.until(READ).await?;
    one.resume(stopped).await?;
    ensure!(one.finish::<bool>().await?, "till 1 has sold a unit");
    if !shop.is_locked().await? {
        two.lane()
            .notes(Event::Stolen, "its lock was deleted by till 1");
    }
    come_to(&mut three, &[READ, REFUSED]).await?;
    two.finish::<bool>().await?;
    shop.look().await?;
    three.finish::<bool>().await?;
    let (sold, left) = shop.count().await?;
    let evidence = Evidence::new()
        .sold(UNITS, sold)
        .stranded(UNITS.saturating_sub(sold).min(left));
    let evidence = evidence
        .holders(stage.timeline.holders_at_once())
        .stuck(stage.timeline.longest(Doing::Waiting));
    Ok(evidence.judge_oversold().judge_stranded().judge_holders())
}
