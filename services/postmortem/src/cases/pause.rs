//! The pause: a holder is stopped past its lease, wakes up, and writes.

use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;

use super::keeper::{Check, DECIDED, Keeping, Kept, Locks, Row, Work, keeper};
use crate::{
    case::{Case, Story, Way},
    evidence::{Evidence, Measure},
    stage::Stage,
    timeline::{Doing, Event},
    what_if::Knob,
};

/// The case.
pub struct Pause;

const STORY: &str = "no check";
const LOOK_FIRST: &str = "a look at the lease";
const VERSION: &str = "version";
const FENCE: &str = "fence";
const CLAIM: &str = "fence and version";

const LEASE: Duration = Duration::from_secs(20);
/// The token before the first.
const TOKENS_AFTER: i64 = 32;
const ON_THE_SHELF: u64 = 10;
const TAKEN_FROM_IT: u64 = 3;

#[async_trait]
impl Case for Pause {
    fn name(&self) -> &'static str {
        "pause"
    }

    fn story(&self) -> Story {
        Story {
            title: "A holder that sleeps past its lease, wakes up and writes",
            told: "A process takes a lock with a lease, reads, and is stopped before it writes: by a collection of garbage, a page fault, a \
                   machine that is moved. The lease ends, another takes the lock and writes; then the first one wakes up, knows nothing of \
                   it, and writes over it. HBase used to have this bug; Martin Kleppmann's picture of it, with the tokens 33 and 34, is the \
                   one that everybody knows.",
            sources: &[
                (
                    "Martin Kleppmann: How to do distributed locking",
                    "https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html",
                ),
                (
                    "Redisson: two threads in the lock after a full collection of garbage",
                    "https://github.com/redisson/redisson/issues/4863",
                ),
            ],
            schedule: "Keeper 1 has the lock, with token 33, has counted 10 units on the shelf, and is stopped (SIGSTOP) just before it writes \
                       that down. Three units are taken from the shelf. When the lease is over keeper 2 gets the lock, with token 34, counts \
                       7 and writes 7. Then keeper 1 wakes up. In the end the shop sells what the row says is there.",
            instead: "Let the store decide: every holder gets a token that is higher than all before, and the store refuses whoever comes with \
                      a lower one than it has seen. No look at the clock replaces that: the pause comes after the look.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                STORY,
                "UPDATE items SET stock = count",
                "the sleeper does not know that it slept, and nobody asks",
            ),
            Way::does_not_help(
                LOOK_FIRST,
                "the same, and just before it the holder makes sure that its lease is not over",
                "the pause comes between the look and the write",
            ),
            Way::does_not_help(
                VERSION,
                "UPDATE ... WHERE version = the one that was read; on a conflict read again and save again, as frameworks do",
                "the version says that somebody has written, not that the lock is gone: the second attempt succeeds",
            ),
            Way::holds(
                FENCE,
                "UPDATE ... SET fence = token WHERE fence <= token",
                "the row has seen token 34, and 33 is refused however often it tries",
            ),
            Way::holds(
                CLAIM,
                "the row is claimed with the token before it is read, and the write checks token and version",
                "the same, and what `in-order-tokens` shows is closed, too",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Stock, Knob::Lease]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let (looks_first, check) = match way {
            STORY => (false, Check::Nothing),
            LOOK_FIRST => (true, Check::Nothing),
            VERSION => (false, Check::Version),
            FENCE => (false, Check::Fence),
            CLAIM => (false, Check::Claim),
            _ => bail!("no such way: {way}"),
        };
        play(
            stage,
            Keeping {
                work: Work::Recount,
                looks_first,
                check,
            },
        )
        .await
    }
}

async fn play(stage: &Stage, keeping: Keeping) -> Result<Evidence> {
    let lease = stage.what_if.lease.unwrap_or(LEASE);
    let units = stage.what_if.stock.unwrap_or(ON_THE_SHELF);
    let row = Row::create(stage, units).await?;
    let redis = stage.redis().await?;
    let locks = Locks::OneServer {
        url: redis.url(),
        after: TOKENS_AFTER,
    };
    let mut one = keeper(stage, &row, 1, lease, locks.clone(), keeping).await?;
    let mut two = keeper(stage, &row, 2, lease, locks, keeping).await?;
    one.until(DECIDED).await?;
    let stopped = one.pause().await?;
    let left = units - TAKEN_FROM_IT.min(units / 2);
    row.fill_shelf(left).await?;
    stage.timeline.lane("the shelf").notes(
        Event::Note,
        format!("{} units are taken from it", units - left),
    );
    two.finish::<Kept>().await?;
    row.stock().await?;
    one.resume(stopped).await?;
    one.finish::<Kept>().await?;
    // What the row says is there is sold.
    let sold = row.stock().await?;
    let evidence = Evidence::new()
        .sold(left, sold)
        .stranded(left.saturating_sub(sold))
        .holders(stage.timeline.holders_at_once());
    let (evidence, zombies) = (
        evidence.stuck(stage.timeline.longest(Doing::Waiting)),
        row.zombie_writes().await?,
    );
    Ok(evidence
        .judge_oversold()
        .judge_stranded()
        .judge(Measure::ZombieWrites, zombies, 0))
}
