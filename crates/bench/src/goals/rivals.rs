//! P9: Stockade beside what people do today, in process, for one hot item and the same number of buyers at a time.
//!
//! What a reader could get wrong: none of the others does what Stockade does. A lock keeps neither a buyer's limit nor an answer that a repeat finds again,
//! and forgets the order itself; a row of SQL remembers it, and knows no limit. So the ratios understate. What keeps its stock in Redis is held against
//! Stockade's accepted orders, what keeps it in PostgreSQL against its recorded ones. Each way is tried with each of its settings first, for a moment,
//! and measured with the best.

mod batches;
mod counter;
mod redlock;
mod row;
mod script;
mod set_nx;
mod stockade;
mod way;

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use tokio::time::sleep;

use self::way::{Kept, Kind, Place};
use super::crowd::{Count, Crowd};
use crate::{
    cli::Bench,
    goal::{Bound, Line, Measured, Sample},
};

const BUYERS: [usize; 2] = [64, 512];
/// However long other goals are measured: there are many ways.
const EACH: Duration = Duration::from_secs(1);
/// Each setting is tried so often, for a part of that.
const TRIALS: u32 = 2;
/// Nobody is refused while a rate is measured.
const STOCK: u64 = 10_000_000;
/// Everybody is refused in the end.
const FEW: u64 = 50;
const MANY: u64 = 120;

/// Measures it.
pub async fn measure(bench: &Bench) -> Result<Measured> {
    let place = Place::open().await?;
    let mut lines = Vec::new();
    for buyers in BUYERS {
        lines.extend(measure_with(&place, buyers, EACH, bench.repeats).await?);
    }
    Ok(Measured {
        goal: "P9",
        title: "beside what people do, in process",
        lines,
    })
}

/// Somebody at this number of buyers.
struct Entrant {
    kind: Kind,
    /// The best that was found.
    tuning: u64,
    /// Of a sale to the last unit.
    drift: i64,
    oversold: u64,
}

async fn measure_with(
    place: &Place,
    buyers: usize,
    each: Duration,
    repeats: usize,
) -> Result<Vec<Line>> {
    let [accepted, recorded] = [
        enter(place, Kind::Accepted, buyers, each).await?,
        enter(place, Kind::Recorded, buyers, each).await?,
    ];
    let mut rivals = Vec::new();
    for kind in Kind::RIVALS {
        let entrant = enter(place, kind, buyers, each).await?;
        let ours = if kind.kept() == Kept::InRedis {
            &accepted
        } else {
            &recorded
        };
        rivals.push((line(ours, &entrant, buyers), ours, entrant));
    }
    for repeat in 0..repeats {
        for (line, ours, theirs) in &mut rivals {
            let half = async |entrant: &Entrant| {
                run(
                    place,
                    entrant.kind,
                    entrant.tuning,
                    buyers,
                    each / 2 * entrant.kind.times(),
                )
                .await
            };
            // There and back, so that a machine that becomes faster or slower meanwhile does so for both.
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
    Ok(rivals.into_iter().map(|(line, _, _)| line).collect())
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

/// Finds the best setting, and sells a few units to many buyers with it.
async fn enter(place: &Place, kind: Kind, buyers: usize, each: Duration) -> Result<Entrant> {
    let (drift, oversold) = sell_out(place, kind, kind.tunings()[0]).await?;
    Ok(Entrant {
        kind,
        tuning: best(place, kind, buyers, each / 3).await?,
        drift,
        oversold,
    })
}

/// In turn, so that a moment in which the machine is slow does not decide.
async fn best(place: &Place, kind: Kind, buyers: usize, length: Duration) -> Result<u64> {
    let [only] = kind.tunings() else {
        let mut rates = vec![0.0; kind.tunings().len()];
        for _ in 0..TRIALS {
            for (rate, tuning) in rates.iter_mut().zip(kind.tunings()) {
                *rate += run(place, kind, *tuning, buyers, length)
                    .await?
                    .count
                    .rate();
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
    /// This one and another, as one.
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
    place: &Place,
    kind: Kind,
    tuning: u64,
    buyers: usize,
    length: Duration,
) -> Result<Run> {
    let way = way::open(place, kind, tuning, STOCK)
        .await
        .with_context(|| kind.name())?;
    let mut crowd = Crowd::of(buyers);
    let rush = crowd.rush(length, {
        let way = Arc::clone(&way);
        move |buyer| {
            let way = Arc::clone(&way);
            async move { way.buy(buyer).await }
        }
    });
    let closes = async {
        sleep(length).await;
        way.close();
    };
    let (count, ()) = tokio::join!(rush, closes);
    let count = count.with_context(|| kind.name())?;
    let (drift, oversold) = way
        .audit(STOCK, count.accepted)
        .await
        .with_context(|| kind.name())?;
    way.end().await?;
    Ok(Run {
        count,
        drift,
        oversold,
    })
}

/// Many buyers for few units: each unit is sold once, and the others are refused.
async fn sell_out(place: &Place, kind: Kind, tuning: u64) -> Result<(i64, u64)> {
    let way = way::open(place, kind, tuning, FEW)
        .await
        .with_context(|| kind.name())?;
    let mut crowd = Crowd::of(BUYERS[0]);
    let count = crowd.order(MANY, {
        let way = Arc::clone(&way);
        move |buyer| {
            let way = Arc::clone(&way);
            async move { way.buy(buyer).await }
        }
    });
    let count = count.await.with_context(|| kind.name())?;
    let (drift, oversold) = way
        .audit(FEW, count.accepted)
        .await
        .with_context(|| kind.name())?;
    way.end().await?;
    // A unit that nobody got although somebody was refused was lost as well.
    let stranded = i64::try_from(FEW.saturating_sub(count.accepted))?;
    Ok((
        drift + stranded,
        oversold.max(count.accepted.saturating_sub(FEW)),
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Kind, Place, run, sell_out};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_way_sells_what_there_is_and_counts_what_it_sold() {
        let place = Place::open().await.unwrap();
        for kind in Kind::RIVALS
            .into_iter()
            .chain([Kind::Accepted, Kind::Recorded])
        {
            assert_eq!(
                sell_out(&place, kind, kind.tunings()[0]).await.unwrap(),
                (0, 0),
                "{}",
                kind.name()
            );
            let run = run(
                &place,
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
