//! P3: the stock crate alone, on one Redis. The baseline is a script that does the minimum of an
//! order step.
//!
//! The crate accepts every order from a separate task and answers each; the raw client only sends
//! batches. On few cores, that difference lowers the orders per second. The server limits what a
//! sale can reach, so further lines compare the server's processor time per order.

use std::sync::Arc;

use ::stock::{Acknowledge, Reservation};
use anyhow::Result;
use domain::{Item, Quantity};
use testbed::Redis;

use super::{
    crowd::{Count, Crowd},
    in_process,
    raw::columns::Columns,
    servers,
};
use crate::{
    goal::{Bound, Line, Measured, Sample},
    options::Options,
};

/// The goal's own batch first.
const BATCHES: [usize; 3] = [128, 32, 512];
/// Batches in flight on either side: the crate sends one per segment at a time.
const SEGMENTS: u16 = 2;
const ORDERS_PER_SECOND: u64 = 150_000;

/// One run of the crate or of the baseline.
struct Run {
    count: Count,
    cpu_us_per_order: f64,
    drift: i64,
    oversold: u64,
    batch: f64,
}

impl Run {
    async fn new(count: Count, cpu_us: f64, batch: f64, (drift, oversold): (i64, u64)) -> Self {
        Self {
            count,
            cpu_us_per_order: cpu_us / count.accepted as f64,
            drift,
            oversold,
            batch,
        }
    }
}

/// Measures it.
pub async fn measure(options: &Options) -> Result<Measured> {
    let orders = options.seconds.clamp(1, 4) * ORDERS_PER_SECOND;
    let (item, reservations) = reservations(orders)?;
    let mut pairs: [Vec<(Run, Run)>; BATCHES.len()] = Default::default();
    for _ in 0..options.repeats {
        for (batch, pairs) in BATCHES.into_iter().zip(&mut pairs) {
            let figure = of_the_crate(&item, &reservations, batch).await?;
            pairs.push((figure, raw(&reservations, batch).await?));
        }
    }
    let rates = BATCHES
        .iter()
        .zip(&pairs)
        .map(|(batch, pairs)| rate_line(*batch, pairs));
    let times = BATCHES
        .iter()
        .zip(&pairs)
        .map(|(batch, pairs)| time_line(*batch, pairs));
    Ok(Measured {
        goal: "P3",
        title: "the stock crate alone, one Redis",
        lines: rates.chain(times).collect(),
    })
}

/// Built beforehand: deriving ids is work of the service, not of the stock crate.
fn reservations(orders: u64) -> Result<(Item, Arc<Vec<Reservation>>)> {
    let item = in_process::item("stock", 2 * orders, SEGMENTS, Some(Quantity::ONE))?;
    let reservations = (0..orders)
        .map(|buyer| in_process::reservation(&item, buyer, Acknowledge::Accepted))
        .collect::<Result<_>>()?;
    Ok((item, Arc::new(reservations)))
}

async fn of_the_crate(
    item: &Item,
    reservations: &Arc<Vec<Reservation>>,
    batch: usize,
) -> Result<Run> {
    let redis = Redis::start().await?;
    let mut meter = servers::connect_all([&redis]).await?;
    let stock = in_process::stock(&redis.url(), batch).await?;
    stock.open(item).await?;
    // Enough to fill a batch while another is in flight.
    let mut crowd = Crowd::of(2 * batch * usize::from(SEGMENTS));
    let before = servers::cpu_us(&mut meter).await?;
    let count = in_process::buy_all(&mut crowd, &stock, item, reservations).await?;
    let cpu_us = servers::cpu_us(&mut meter).await? - before;
    let logged = in_process::logged(&stock, item).await?;
    stock.shutdown().await;
    let history = (
        logged.drift(item.stock, count.accepted),
        logged.taken.saturating_sub(item.stock),
    );
    Ok(Run::new(count, cpu_us, logged.batch(), history).await)
}

async fn raw(reservations: &Arc<Vec<Reservation>>, batch: usize) -> Result<Run> {
    let redis = Redis::start().await?;
    let mut meter = servers::connect_all([&redis]).await?;
    let mut columns = Columns::open(
        &redis.url(),
        usize::from(SEGMENTS),
        2 * reservations.len() as u64,
    )
    .await?;
    let before = servers::cpu_us(&mut meter).await?;
    let count = columns.sell(reservations, batch).await?;
    let cpu_us = servers::cpu_us(&mut meter).await? - before;
    let history = columns.audit(count.accepted).await?;
    Ok(Run::new(count, cpu_us, batch as f64, history).await)
}

fn line(batch: usize, pairs: &[(Run, Run)], of: fn(&Run) -> f64) -> Line {
    let mean =
        pairs.iter().map(|(figure, _)| figure.batch).sum::<f64>() / pairs.len().max(1) as f64;
    let samples = pairs.iter().map(|(figure, baseline)| Sample {
        figure: of(figure),
        baseline: of(baseline),
        accepted: figure.count.accepted,
        rejected: figure.count.rejected,
        drift: figure.drift + baseline.drift,
        oversold: figure.oversold + baseline.oversold,
    });
    Line {
        figure: String::new(),
        baseline: String::new(),
        unit: "",
        bound: Bound::None,
        setting: format!(
            "{}, no HTTP; batches of at most {batch} (the crate's: {mean:.0} on average), {SEGMENTS} in flight on each side; limit 1",
            servers::REDIS
        ),
        samples: samples.collect(),
    }
}

fn rate_line(batch: usize, pairs: &[(Run, Run)]) -> Line {
    Line {
        figure: format!("stock crate, batch {batch}"),
        baseline: format!("raw columns script, batch {batch}"),
        unit: "orders/s",
        bound: if batch == BATCHES[0] {
            Bound::AtLeast(0.8)
        } else {
            Bound::None
        },
        ..line(batch, pairs, |run| run.count.rate())
    }
}

fn time_line(batch: usize, pairs: &[(Run, Run)]) -> Line {
    Line {
        figure: format!("Redis' processor time, stock crate, batch {batch}"),
        baseline: format!("Redis' processor time, raw columns script, batch {batch}"),
        unit: "us/order",
        ..line(batch, pairs, |run| run.cpu_us_per_order)
    }
}

#[cfg(test)]
mod tests {
    use super::{of_the_crate, raw, reservations};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn crate_and_baseline_account_for_every_unit() {
        let (item, reservations) = reservations(20_000).unwrap();
        for run in [
            of_the_crate(&item, &reservations, 128).await.unwrap(),
            raw(&reservations, 128).await.unwrap(),
        ] {
            assert_eq!(
                (
                    run.count.accepted,
                    run.count.rejected,
                    run.drift,
                    run.oversold
                ),
                (20_000, 0, 0, 0)
            );
            assert!(run.cpu_us_per_order > 0.0 && run.batch > 1.0);
        }
    }
}
