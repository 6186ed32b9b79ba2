//! The short lease: the work takes longer than the lock lasts.

use std::time::Duration;

use anyhow::{Result, bail};
use async_trait::async_trait;

use super::till::{Free, Locking, READ, REFUSED, Shop, Take};
use crate::{
    case::{Case, Story, Way},
    evidence::Evidence,
    stage::Stage,
    timeline::{Doing, Event},
    what_if::Knob,
};

/// The case.
pub struct ShortLease;

const STORY: &str = "a lease of 15 s";
const LONG_LEASE: &str = "a longer lease";
const WATCHDOG: &str = "watchdog";
const WATCHDOG_AND_PAUSE: &str = "watchdog, and a pause";

const LEASE: Duration = Duration::from_secs(15);
const WORK: Duration = Duration::from_secs(30);
const UNITS: u64 = 2;
/// How many leases of the story others may stand still after a holder's death.
const AT_MOST: u32 = 2;
/// A till that does not come in this time never comes.
const NEVER: Duration = Duration::from_secs(120);

#[async_trait]
impl Case for ShortLease {
    fn name(&self) -> &'static str {
        "short-lease"
    }

    fn story(&self) -> Story {
        Story {
            title: "Work that takes longer than its lock lasts",
            told: "A job took a lock for longer than it had ever needed, until the day on which it needed longer: the lock ran out in the middle, \
                   the next worker began the same job, and both wrote. A longer lease makes that rarer, and keeps everybody out for longer when \
                   a holder dies; so libraries renew the lock while the work goes on, which Redisson calls a watchdog.",
            sources: &[
                (
                    "Azure Cosmos DB design patterns: global lock fails when work takes longer than TTL",
                    "https://github.com/Azure-Samples/cosmos-db-design-patterns/issues/32",
                ),
                (
                    "Sourcegraph: a sync took more than two minutes, and its lock ran out",
                    "https://github.com/sourcegraph/sourcegraph-public-snapshot/pull/54453",
                ),
                (
                    "Bull: a job that loses its lock is processed twice",
                    "https://docs.bullmq.io/bull/important-notes",
                ),
                (
                    "Redisson: locks and their watchdog",
                    "https://redisson.pro/docs/data-and-services/locks-and-synchronizers/",
                ),
            ],
            schedule: "Two units are left. Till 1 has read the stock under its lock, and works for 30 s, unless till 2 comes in before. Then \
                       both go on. Afterwards till 3 is killed (SIGKILL) with the lock in its hand, and till 4 waits for it. In the last way \
                       till 1 does not work for long but is stopped (SIGSTOP), which no watchdog survives.",
            instead: "Let the lease be short and renew it while the work goes on, so that a dead holder is followed soon. Tell the work when \
                      the lock is lost. And because a process that is stopped is told nothing, let the store check a token (see `pause`).",
        }
    }

    fn ways(&self) -> Vec<Way> {
        vec![
            Way::faulty(
                STORY,
                "SET key value NX PX 15000, and work for 30 s",
                "the lock runs out in the middle of the work",
            ),
            Way::does_not_help(
                LONG_LEASE,
                "the same with a lease of one and a half times the work",
                "the lock lasts, but when a holder dies everybody stands still until its long lease is over",
            ),
            Way::holds(
                WATCHDOG,
                "a lease of 15 s that a watchdog extends every 5 s",
                "the lock lasts as long as its holder lives, and not much longer",
            ),
            Way::does_not_help(
                WATCHDOG_AND_PAUSE,
                "the same, and the holder is stopped (SIGSTOP) in the middle of its work",
                "the watchdog is stopped with it, and when it wakes up it finds nothing to extend and the work goes on",
            ),
        ]
    }

    fn knobs(&self) -> &'static [Knob] {
        &[Knob::Lease, Knob::Stall]
    }

    async fn play(&self, way: &str, stage: &Stage) -> Result<Evidence> {
        let (short, work) = (
            stage.what_if.lease.unwrap_or(LEASE),
            stage.what_if.stall.unwrap_or(WORK),
        );
        let (lease, renewed) = match way {
            STORY => (short, false),
            LONG_LEASE => (work * 3 / 2, false),
            WATCHDOG | WATCHDOG_AND_PAUSE => (short, true),
            _ => bail!("no such way: {way}"),
        };
        let locking = Locking {
            take: Take::SetNxPx,
            renewed,
            free: Free::CompareAndDelete,
        };
        let shop = Shop::open(stage, UNITS).await?;
        let job = Job {
            stage,
            shop,
            lease,
            work,
            locking,
        };
        job.takes_long(way == WATCHDOG_AND_PAUSE).await?;
        let stuck = job.dies().await?;
        let (sold, left) = job.shop.count().await?;
        let evidence = Evidence::new()
            .sold(UNITS, sold)
            .stranded(UNITS.saturating_sub(sold).min(left));
        let evidence = evidence
            .holders(stage.timeline.holders_at_once())
            .stuck(stuck);
        Ok(evidence
            .judge_oversold()
            .judge_stranded()
            .judge_stuck((short * AT_MOST).as_secs_f64()))
    }
}

struct Job<'a> {
    stage: &'a Stage,
    shop: Shop<'a>,
    lease: Duration,
    work: Duration,
    locking: Locking,
}

impl Job<'_> {
    /// Till 1 works for long, or is stopped, and till 2 wants the lock meanwhile.
    async fn takes_long(&self, stop: bool) -> Result<()> {
        let mut one = self.shop.till(1, self.lease, self.locking).await?;
        let mut two = self.shop.till(2, self.lease, self.locking).await?;
        one.until(READ).await?;
        two.until(REFUSED).await?;
        let works = (!stop).then(|| one.lane().is(Doing::Working, "a long job"));
        let stopped = if stop { Some(one.pause().await?) } else { None };
        let second = self.shop.comes_to(&mut two, &[READ], self.work).await?;
        if second.is_some() {
            one.lane().notes(Event::Expired, "its lock ran out");
        }
        if let Some(stopped) = stopped {
            one.resume(stopped).await?;
        }
        drop(works);
        one.finish::<bool>().await?;
        self.shop.look().await?;
        two.finish::<bool>().await?;
        self.shop.look().await?;
        Ok(())
    }

    /// Till 3 dies inside. For how long till 4 stands still then.
    async fn dies(&self) -> Result<f64> {
        let mut three = self.shop.till(3, self.lease, self.locking).await?;
        let mut four = self.shop.till(4, self.lease, self.locking).await?;
        three.until(READ).await?;
        four.until(REFUSED).await?;
        let killed = self.stage.timeline.now();
        three.kill().await?;
        anyhow::ensure!(
            self.shop
                .comes_to(&mut four, &[READ], NEVER.max(self.lease * 2))
                .await?
                .is_some(),
            "till 4 never got the lock"
        );
        let stuck = self.stage.timeline.now() - killed;
        four.finish::<bool>().await?;
        Ok(stuck)
    }
}
