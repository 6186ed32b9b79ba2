//! Work that takes longer than its lease.

use std::time::Duration;

use anyhow::Result;

use super::till::{Free, Locking, READ, REFUSED, Take, TillEnv};
use crate::{
    case::Case,
    measurements::Measurements,
    test_env::TestEnv,
    timeline::{Doing, Event},
    what_if::Knob,
};

const LEASE: Duration = Duration::from_secs(15);
const WORK: Duration = Duration::from_secs(30);
const UNITS: u64 = 2;
/// Number of short leases for which others may wait after a holder's death.
const STUCK_LEASES_MAX: u32 = 2;
/// Scenario time after which a waiting till counts as stuck.
const STUCK_TIMEOUT: Duration = Duration::from_secs(120);

/// Builds the case: its scenario, its knobs and its variants.
pub fn case() -> Case {
    Case::new("short-lease", include_str!("short_lease.toml"))
        .knobs(&[Knob::Lease, Knob::Stall])
        .faulty("15 s lease", |env| {
            Box::pin(run(env, Lease::Fixed, Interruption::LongWork))
        })
        .does_not_help("longer lease", |env| {
            Box::pin(run(env, Lease::LongerThanWork, Interruption::LongWork))
        })
        .holds("watchdog", |env| {
            Box::pin(run(env, Lease::Renewed, Interruption::LongWork))
        })
        .does_not_help("watchdog and a pause", |env| {
            Box::pin(run(env, Lease::Renewed, Interruption::Pause))
        })
}

/// Lease of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lease {
    /// The short lease, without renewal.
    Fixed,
    /// One and a half times the work, without renewal.
    LongerThanWork,
    /// The short lease, which a watchdog renews.
    Renewed,
}

/// Why till 1 is still inside when its lease ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interruption {
    /// Its work takes longer than the short lease.
    LongWork,
    /// Its process is stopped.
    Pause,
}

async fn run(env: &TestEnv, lease: Lease, interruption: Interruption) -> Result<Measurements> {
    let short = env.what_if.lease.unwrap_or(LEASE);
    let work = env.what_if.stall.unwrap_or(WORK);
    let job = Job {
        env,
        tills: TillEnv::open(env, UNITS).await?,
        lease: match lease {
            Lease::Fixed | Lease::Renewed => short,
            Lease::LongerThanWork => work * 3 / 2,
        },
        work,
        locking: Locking {
            take: Take::SetNxPx,
            renewed: lease == Lease::Renewed,
            free: Free::CompareAndDelete,
        },
    };
    job.outlast_lease(interruption == Interruption::Pause)
        .await?;
    let stuck = job.die().await?;
    let (sold, left) = job.tills.count().await?;
    Ok(Measurements::of(&env.timeline)
        .stuck(stuck)
        .judge_sale(UNITS, sold, UNITS.saturating_sub(sold).min(left))
        .judge_stuck((short * STUCK_LEASES_MAX).as_secs_f64()))
}

struct Job<'a> {
    env: &'a TestEnv,
    tills: TillEnv<'a>,
    lease: Duration,
    work: Duration,
    locking: Locking,
}

impl Job<'_> {
    /// Lets till 1 work for long or pause, while till 2 requests the lock.
    async fn outlast_lease(&self, stop: bool) -> Result<()> {
        let mut one = self.tills.till(1, self.lease, self.locking).await?;
        let mut two = self.tills.till(2, self.lease, self.locking).await?;
        one.until(READ).await?;
        two.until(REFUSED).await?;
        let working = (!stop).then(|| one.lane().is(Doing::Working, "a long job"));
        let stopped = if stop { Some(one.pause().await?) } else { None };
        let second = self.tills.wait_at(&mut two, &[READ], self.work).await?;
        if second.is_some() {
            one.lane().notes(Event::Expired, "its lease expired");
        }
        if let Some(stopped) = stopped {
            one.resume(stopped).await?;
        }
        drop(working);
        one.finish::<bool>().await?;
        self.tills.note_stock().await?;
        two.finish::<bool>().await?;
        self.tills.note_stock().await?;
        Ok(())
    }

    /// Kills till 3 while it holds the lock, and returns how long till 4 waits from then on.
    async fn die(&self) -> Result<f64> {
        let mut three = self.tills.till(3, self.lease, self.locking).await?;
        let mut four = self.tills.till(4, self.lease, self.locking).await?;
        three.until(READ).await?;
        four.until(REFUSED).await?;
        let killed = self.env.timeline.now();
        three.kill().await?;
        anyhow::ensure!(
            self.tills
                .wait_at(&mut four, &[READ], STUCK_TIMEOUT.max(self.lease * 2))
                .await?
                .is_some(),
            "till 4 did not get the lock within {STUCK_TIMEOUT:?} of scenario time"
        );
        let stuck = self.env.timeline.now() - killed;
        four.finish::<bool>().await?;
        Ok(stuck)
    }
}
