//! P9: Stockade compared with common practice, in process, for one hot item and the same number of
//! concurrent buyers.
//!
//! No baseline does all that Stockade does. A lock enforces no limit, is not idempotent and does
//! not even record the order; an SQL row records it, but enforces no limit. The ratios therefore
//! understate. Baselines with stock in Redis are compared with Stockade's accepted orders,
//! baselines with stock in PostgreSQL with its recorded orders. Each variant is first tried briefly
//! with each of its settings, and then measured with the best one.

mod batches;
mod counter;
mod kind;
mod patience;
mod redlock;
mod row;
mod script;
mod set_nx;
mod stockade;
mod test_env;
mod variant;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use tokio::time::sleep;

use self::{
    kind::{Kept, Kind},
    test_env::TestEnv,
};
use super::crowd::{Count, Crowd};
use crate::{
    goal::{Bound, Line, Measured, Sample},
    options::Options,
};

const BUYERS: [usize; 2] = [64, 512];
/// Duration of one run, whatever `--seconds` is: there are many variants.
const RUN_DURATION: Duration = Duration::from_secs(1);
/// Trials of each setting, each for a part of that time.
const TRIALS: u32 = 2;
/// Enough that no buyer is refused while a rate is measured.
const STOCK: u64 = 10_000_000;
/// Stock and buyers of a sale to the last unit.
const FEW: u64 = 50;
const MANY: u64 = 120;

/// Measures it.
pub async fn measure(options: &Options) -> Result<Measured> {
    let env = TestEnv::open().await?;
    let mut lines = Vec::new();
    for buyers in BUYERS {
        lines.extend(measure_with(&env, buyers, RUN_DURATION, options.repeats).await?);
    }
    Ok(Measured {
        goal: "P9",
        title: "compared with common practice, in process",
        lines,
    })
}

/// A variant with its best setting for this number of buyers.
struct Entrant {
    kind: Kind,
    /// The best tuning number.
    tuning: u64,
    /// Drift of a sale to the last unit.
    drift: i64,
    oversold: u64,
}

async fn measure_with(
    env: &TestEnv,
    buyers: usize,
    each: Duration,
    repeats: usize,
) -> Result<Vec<Line>> {
    let [accepted, recorded] = [
        enter(env, Kind::Accepted, buyers, each).await?,
        enter(env, Kind::Recorded, buyers, each).await?,
    ];
    let mut baselines = Vec::new();
    for kind in Kind::BASELINES {
        let entrant = enter(env, kind, buyers, each).await?;
        let ours = if kind.kept() == Kept::InRedis {
            &accepted
        } else {
            &recorded
        };
        baselines.push((line(ours, &entrant, buyers), ours, entrant));
    }
    for repeat in 0..repeats {
        for (line, ours, theirs) in &mut baselines {
            let half = async |entrant: &Entrant| {
                run(
                    env,
                    entrant.kind,
                    entrant.tuning,
                    buyers,
                    each / 2 * entrant.kind.times(),
                )
                .await
            };
            // In both orders, so that a machine that becomes faster or slower affects both alike.
            let (figure, baseline) = (half(ours).await?, half(theirs).await?);
            let baseline = baseline.and(half(theirs).await?);
            let figure = figure.and(half(ours).await?);
            let (drift, oversold) = if repeat == 0 {
                (ours.drift + theirs.drift, ours.oversold + theirs.oversold)
            } else {
                (0, 0)
            };
            line.samples.push(Sample {
                figure: figure.count.rate(),
                baseline: baseline.count.rate(),
                accepted: figure.count.accepted,
                rejected: figure.count.rejected,
                drift: figure.drift + baseline.drift + drift,
                oversold: figure.oversold + baseline.oversold + oversold,
            });
        }
    }
    Ok(baselines.into_iter().map(|(line, _, _)| line).collect())
}

fn line(ours: &Entrant, theirs: &Entrant, buyers: usize) -> Line {
    Line {
        figure: ours.kind.name().into(),
        baseline: theirs.kind.name().into(),
        unit: "orders/s",
        bound: Bound::AtLeast(1.0),
        setting: format!(
            "{buyers} buyers; Stockade: {}; the other: {}",
            ours.kind.setting(ours.tuning),
            theirs.kind.setting(theirs.tuning)
        ),
        samples: Vec::new(),
    }
}

/// Sells a few units to many buyers, and finds the best setting.
async fn enter(env: &TestEnv, kind: Kind, buyers: usize, each: Duration) -> Result<Entrant> {
    let (drift, oversold) = sell_out(env, kind, kind.tunings()[0]).await?;
    Ok(Entrant {
        kind,
        tuning: best(env, kind, buyers, each / 3).await?,
        drift,
        oversold,
    })
}

/// Tries the settings in turn, so that a slow moment of the machine does not decide.
async fn best(env: &TestEnv, kind: Kind, buyers: usize, length: Duration) -> Result<u64> {
    let [only] = kind.tunings() else {
        let mut rates = vec![0.0; kind.tunings().len()];
        for _ in 0..TRIALS {
            for (rate, tuning) in rates.iter_mut().zip(kind.tunings()) {
                *rate += run(env, kind, *tuning, buyers, length).await?.count.rate();
            }
        }
        let best = rates
            .iter()
            .zip(kind.tunings())
            .max_by(|a, b| a.0.total_cmp(b.0));
        return best
            .map(|(_, tuning)| *tuning)
            .context("nothing to choose from");
    };
    Ok(*only)
}

/// One measurement.
struct Run {
    count: Count,
    drift: i64,
    oversold: u64,
}

impl Run {
    /// The sum of two runs.
    fn and(mut self, other: Self) -> Self {
        self.count.add(&other.count);
        self.count.took += other.count.took;
        Self {
            count: self.count,
            drift: self.drift.abs() + other.drift.abs(),
            oversold: self.oversold + other.oversold,
        }
    }
}

async fn run(
    env: &TestEnv,
    kind: Kind,
    tuning: u64,
    buyers: usize,
    length: Duration,
) -> Result<Run> {
    let variant = kind::open(env, kind, tuning, STOCK)
        .await
        .with_context(|| kind.name())?;
    let mut crowd = Crowd::of(buyers);
    let rush = crowd.rush(length, {
        let variant = Arc::clone(&variant);
        move |buyer| {
            let variant = Arc::clone(&variant);
            async move { variant.buy(buyer).await }
        }
    });
    let closes = async {
        sleep(length).await;
        variant.close();
    };
    let (count, ()) = tokio::join!(rush, closes);
    let count = count.with_context(|| kind.name())?;
    let (drift, oversold) = variant
        .audit(STOCK, count.accepted)
        .await
        .with_context(|| kind.name())?;
    variant.end().await?;
    Ok(Run {
        count,
        drift,
        oversold,
    })
}

/// Many buyers for few units: each unit is sold once, and the others are refused.
async fn sell_out(env: &TestEnv, kind: Kind, tuning: u64) -> Result<(i64, u64)> {
    let variant = kind::open(env, kind, tuning, FEW)
        .await
        .with_context(|| kind.name())?;
    let mut crowd = Crowd::of(BUYERS[0]);
    let count = crowd.order(MANY, {
        let variant = Arc::clone(&variant);
        move |buyer| {
            let variant = Arc::clone(&variant);
            async move { variant.buy(buyer).await }
        }
    });
    let count = count.await.with_context(|| kind.name())?;
    let (drift, oversold) = variant
        .audit(FEW, count.accepted)
        .await
        .with_context(|| kind.name())?;
    variant.end().await?;
    // A unit that stays unsold although a buyer was refused is stranded.
    let stranded = i64::try_from(FEW.saturating_sub(count.accepted))?;
    Ok((
        drift + stranded,
        oversold.max(count.accepted.saturating_sub(FEW)),
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Kind, TestEnv, run, sell_out};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_variant_sells_its_stock_and_accounts_for_it() {
        let env = TestEnv::open().await.unwrap();
        for kind in Kind::BASELINES
            .into_iter()
            .chain([Kind::Accepted, Kind::Recorded])
        {
            assert_eq!(
                sell_out(&env, kind, kind.tunings()[0]).await.unwrap(),
                (0, 0),
                "{}",
                kind.name()
            );
            let run = run(
                &env,
                kind,
                kind.tunings()[0],
                16,
                Duration::from_millis(200),
            )
            .await
            .unwrap();
            assert!(run.count.accepted > 0, "{}", kind.name());
            assert_eq!((run.drift, run.oversold), (0, 0), "{}", kind.name());
        }
    }
}
