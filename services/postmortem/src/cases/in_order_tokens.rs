//! Tokens in order: two stale holders arrive late, but in the order of their tokens, and the fence lets both pass.

use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;

use super::keeper::{
    ANSWERED, Check, DECIDED, Keeping, Kept, Locks, Row, Work, keeper, lock_is_free,
};
use crate::{
    case::{Case, Story, Way},
    evidence::{Evidence, Measure},
    stage::Stage,
    timeline::Doing,
    what_if::Knob,
};

/// The case.
pub struct InOrderTokens;

const STORY: &str = "fence alone";
const FENCE_AND_VERSION: &str = "fence and version";
const CLAIM: &str = "claim, then both";

const LEASE: Duration = Duration::from_secs(15);
/// The token before the first.
const TOKENS_AFTER: i64 = 32;
const UNITS: u64 = 10;

#[async_trait]
impl Case for InOrderTokens {
    fn name(&self) -> &'static str {
        "in-order-tokens"
    }

    fn story(&self) -> Story {
        Story {
            title: "Two late holders, whose tokens arrive in order",
            told: "A store that refuses tokens lower than the highest it has seen stops a sleeper whose successor has written. But if the \
                   successor has only read so far, and sleeps too, both wake up late and write in the order of their tokens, 33 and then 34: \
                   the fence lets both pass, and the second was decided on a state without the first one's write. The author of Redis pointed at it in \
                   the debate about Redlock: the order of tokens need not be the order in which clients work, and what is wanted is check and set.",
            sources: &[
                (
                    "Salvatore Sanfilippo: Is Redlock safe?",
                    "http://antirez.com/news/101",
                ),
                (
                    "Martin Kleppmann: How to do distributed locking",
                    "https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html",
                ),
            ],
            schedule: "Ten units are left. Keeper 1 has the lock, with token 33, has read 10, and is stopped (SIGSTOP) before it writes 9. When \
                       its lease is over keeper 2 gets the lock, with token 34, reads 10, and is stopped as well, until its lease is over, too. \
                       Then keeper 1 wakes up and writes, and then keeper 2. Whoever is refused begins anew: takes the lock, reads and writes. \
                       In the end the shop sells what the row says is left.",
            instead: "Check two things in the write: the token, which says who may, and a version, which says that nobody has written since \
                      it was read. Best claim the row with the token before it is read; then even the first late write is refused.",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                STORY,
                "UPDATE ... SET fence = token WHERE fence <= token",
                "33 passes because 34 has not written yet, and 34 passes because it is higher",
            ),
            Way::holds(
                FENCE_AND_VERSION,
                "UPDATE ... WHERE fence <= token AND version = the one that was read",
                "33 passes, and 34 is refused because the row is not what it has read",
            ),
            Way::holds(
                CLAIM,
                "the row is claimed with the token before it is read, and the write checks token and version",
                "33 is refused because 34 has claimed the row, and 34 finds the row as it has read it",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Stock, Knob::Lease]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let check = match way {
            STORY => Check::Fence,
            FENCE_AND_VERSION => Check::FenceAndVersion,
            CLAIM => Check::Claim,
            _ => bail!("no such way: {way}"),
        };
        play(
            stage,
            Keeping {
                work: Work::Sale,
                looks_first: false,
                check,
            },
        )
        .await
    }
}

async fn play(stage: &Stage, keeping: Keeping) -> Result<Evidence> {
    let lease = stage.what_if.lease.unwrap_or(LEASE);
    let units = stage.what_if.stock.unwrap_or(UNITS);
    let row = Row::create(stage, units).await?;
    let redis = stage.redis().await?;
    let locks = Locks::OneServer {
        url: redis.url(),
        after: TOKENS_AFTER,
    };
    let mut one = keeper(stage, &row, 1, lease, locks.clone(), keeping).await?;
    let mut two = keeper(stage, &row, 2, lease, locks, keeping).await?;
    one.until(DECIDED).await?;
    let first_stopped = one.pause().await?;
    two.until(DECIDED).await?;
    let second_stopped = two.pause().await?;
    lock_is_free([&redis]).await?;
    one.resume(first_stopped).await?;
    one.until(ANSWERED).await?;
    row.stock().await?;
    two.resume(second_stopped).await?;
    two.until(ANSWERED).await?;
    row.stock().await?;
    two.finish::<Kept>().await?;
    row.stock().await?;
    one.finish::<Kept>().await?;
    // What the row says is left is sold, too.
    let sold = row.writes().await? + row.stock().await?;
    let evidence = Evidence::new()
        .sold(units, sold)
        .stranded(units.saturating_sub(sold))
        .holders(stage.timeline.holders_at_once());
    let evidence = evidence
        .stuck(stage.timeline.longest(Doing::Waiting))
        .judge_oversold()
        .judge_stranded();
    Ok(evidence.judge(Measure::LostUpdates, row.lost_updates().await?, 0))
}
