//! P3: the stock crate alone, on one Redis, beside a script that does as little as an order step can.
//!
//! What a reader could get wrong: who waits for whom. The crate takes every order from a task of its own and answers each, and the raw client
//! only makes batches; on few cores that shows in the orders per second. What a sale can reach is limited by the server, so what the server
//! needs for an order stands beside.

use std::sync::Arc;

use ::stock::{Acknowledge, Ask};
use anyhow::Result;
use domain::{Item, Quantity};
use testbed::Redis;

use super::{
    crowd::{Count, Crowd},
    raw::columns::Columns,
    servers, shop,
};
use crate::{
    cli::Bench,
    goal::{Bound, Line, Measured, Sample},
};

/// The goal's own batch first.
const BATCHES: [usize; 3] = [128, 32, 512];
/// Both have so many batches under way: the crate sends one for each segment at a time.
const LANES: u16 = 2;
const ORDERS_PER_SECOND: u64 = 150_000;

/// One run of one of the two.
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
pub async fn measure(bench: &Bench) -> Result<Measured> {
    let orders = bench.seconds.clamp(1, 4) * ORDERS_PER_SECOND;
    let (item, asks) = asks(orders)?;
    let mut pairs: [Vec<(Run, Run)>; BATCHES.len()] = Default::default();
    for _ in 0..bench.repeats {
        for (batch, pairs) in BATCHES.into_iter().zip(&mut pairs) {
            let figure = of_the_crate(&item, &asks, batch).await?;
            pairs.push((figure, raw(&asks, batch).await?));
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

/// Made beforehand: deriving ids is the service's work and not the stock's.
fn asks(orders: u64) -> Result<(Item, Arc<Vec<Ask>>)> {
    let item = shop::item("stock", 2 * orders, LANES, Some(Quantity::ONE))?;
    let asks = (0..orders)
        .map(|buyer| shop::ask(&item, buyer, Acknowledge::Accepted))
        .collect::<Result<_>>()?;
    Ok((item, Arc::new(asks)))
}

async fn of_the_crate(item: &Item, asks: &Arc<Vec<Ask>>, batch: usize) -> Result<Run> {
    let redis = Redis::start().await?;
    let mut meter = servers::connect_all([&redis]).await?;
    let stock = shop::stock(&redis.url(), batch).await?;
    stock.open(item).await?;
    // Enough that a batch gathers while another is away.
    let mut crowd = Crowd::of(2 * batch * usize::from(LANES));
    let before = servers::cpu_us(&mut meter).await?;
    let count = crowd.order(asks.len() as u64, {
        let (stock, item, asks) = (Arc::clone(&stock), Arc::new(item.clone()), Arc::clone(asks));
        move |buyer| {
            let (stock, item, ask) = (
                Arc::clone(&stock),
                Arc::clone(&item),
                asks.get(buyer as usize).cloned(),
            );
            async move {
                shop::buy(
                    &stock,
                    &item,
                    ask.ok_or_else(|| anyhow::anyhow!("nobody asks as number {buyer}"))?,
                )
                .await
            }
        }
    });
    let count = count.await?;
    let cpu_us = servers::cpu_us(&mut meter).await? - before;
    let logged = shop::logged(&stock, item).await?;
    stock.shutdown().await;
    let books = (
        logged.drift(item.stock, count.accepted),
        logged.taken.saturating_sub(item.stock),
    );
    Ok(Run::new(count, cpu_us, logged.batch(), books).await)
}

async fn raw(asks: &Arc<Vec<Ask>>, batch: usize) -> Result<Run> {
    let redis = Redis::start().await?;
    let mut meter = servers::connect_all([&redis]).await?;
    let mut columns =
        Columns::open(&redis.url(), usize::from(LANES), 2 * asks.len() as u64).await?;
    let before = servers::cpu_us(&mut meter).await?;
    let count = columns.sell(asks, batch).await?;
    let cpu_us = servers::cpu_us(&mut meter).await? - before;
    let books = columns.audit(count.accepted).await?;
    Ok(Run::new(count, cpu_us, batch as f64, books).await)
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
            "{}, no HTTP; batches of at most {batch} (the crate's: {mean:.0} on average), {LANES} under way on each side; limit 1",
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
    use super::{asks, of_the_crate, raw};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn both_sell_every_unit_that_they_count() {
        let (item, asks) = asks(20_000).unwrap();
        for run in [
            of_the_crate(&item, &asks, 128).await.unwrap(),
            raw(&asks, 128).await.unwrap(),
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
