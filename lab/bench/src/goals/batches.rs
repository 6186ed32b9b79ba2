//! P10: orders in batches over HTTP, as a shop's backend places them with the client crate,
//! compared with requests to the bare handler.
//!
//! The driver is the client crate itself: it makes and reads every order, on the same machine. So
//! many buyers order concurrently as the bare handler has connections, and each orders again after
//! its answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use client::{Durability, IdempotencyKey, OrderBatcher};
use tokio::task::JoinSet;

use crate::{
    baseline::{Kind, around},
    buyers::{CROWD, Crowd},
    goal::{Bound, Line, Measured, Sample},
    options::Options,
    sale::PLENTY,
    test_env::TestEnv,
};

const ITEM: &str = "p10";
const ROUTE: &str = "/v1/items/{item}/orders:batch";
/// Orders of a request, if they spread evenly over the requests.
const BATCH: u32 = 128;
const WARM_SECONDS: u64 = 1;

/// Each repeat measures both on new servers, and the bare handler before and after each.
pub async fn measure(options: &Options) -> Result<Measured> {
    let crowd = Crowd::new(CROWD)?;
    let mut lines = Vec::new();
    for (durability, least) in [(Durability::Recorded, 0.8), (Durability::Accepted, 1.3)] {
        let (mut samples, mut batches) = (Vec::new(), Vec::new());
        for _ in 0..options.repeats {
            let ours = in_batches(options, durability);
            let (baseline, (batch, sample)) = around(Kind::Bare, options, &crowd, ours).await?;
            samples.push(Sample { baseline, ..sample });
            batches.push(format!("{batch:.0}"));
        }
        lines.push(line(options, durability, least, &batches, samples));
    }
    Ok(Measured {
        goal: "P10",
        title: "orders in batches over HTTP, by the client crate",
        lines,
    })
}

fn flights(options: &Options) -> u32 {
    options.connections.div_ceil(BATCH)
}

/// Orders of a request, and the sample.
async fn in_batches(options: &Options, durability: Durability) -> Result<(f64, Sample)> {
    let env = TestEnv::start().await?;
    env.open(ITEM, PLENTY, durability).await?;
    let buyers = Buyers {
        batcher: env.batcher(ITEM, flights(options) as usize),
        count: options.connections,
        is_recorded: durability == Durability::Recorded,
        orders: Arc::default(),
    };
    let warm = buyers.order_for(Duration::from_secs(WARM_SECONDS)).await?;
    let (held, requests) = (env.audit(ITEM).await?.held, env.requests(ROUTE).await?);
    ensure!(
        held == warm.orders,
        "{} orders were acknowledged, and the ledger has {held}",
        warm.orders
    );
    let placed = buyers
        .order_for(Duration::from_secs(options.seconds))
        .await?;
    let (audit, requests) = (
        env.audit(ITEM).await?,
        env.requests(ROUTE).await? - requests,
    );
    ensure!(
        audit.held - held == placed.orders,
        "{} orders were acknowledged, and the ledger has {} more than before",
        placed.orders,
        audit.held - held
    );
    let sample = Sample {
        figure: placed.per_second(),
        accepted: placed.orders,
        drift: i64::try_from(audit.drift)?,
        oversold: audit.oversold,
        ..Sample::default()
    };
    Ok((placed.orders as f64 / requests.max(1) as f64, sample))
}

/// Concurrent buyers.
struct Buyers {
    batcher: OrderBatcher,
    count: u32,
    is_recorded: bool,
    /// Orders so far: each has a key of its own.
    orders: Arc<AtomicU64>,
}

/// Orders that were answered, and the time from the first to the last.
struct Placed {
    orders: u64,
    took: Duration,
}

impl Placed {
    fn per_second(&self) -> f64 {
        self.orders as f64 / self.took.as_secs_f64()
    }
}

impl Buyers {
    /// Has each of them order again and again. The last orders are answered too.
    async fn order_for(&self, time: Duration) -> Result<Placed> {
        let began = Instant::now();
        let mut buyers = JoinSet::new();
        for number in 0..self.count {
            buyers.spawn(order_until(
                began + time,
                self.batcher.clone(),
                format!("buyer-{number}"),
                self.is_recorded,
                Arc::clone(&self.orders),
            ));
        }
        let mut orders = 0;
        while let Some(placed) = buyers.join_next().await {
            orders += placed??;
        }
        let took = began.elapsed();
        Ok(Placed { orders, took })
    }
}

async fn order_until(
    until: Instant,
    batcher: OrderBatcher,
    buyer: String,
    is_recorded: bool,
    orders: Arc<AtomicU64>,
) -> Result<u64> {
    let mut placed = 0;
    while Instant::now() < until {
        let key = format!("key-{}", orders.fetch_add(1, Ordering::Relaxed));
        let order = batcher.order(&buyer, 1, IdempotencyKey::new(key)?);
        let order = order.await.context("an order in a batch")?;
        ensure!(
            order.recorded == is_recorded && !order.replayed,
            "an order was answered {order:?}"
        );
        placed += 1;
    }
    Ok(placed)
}

fn line(
    options: &Options,
    durability: Durability,
    least: f64,
    batches: &[String],
    samples: Vec<Sample>,
) -> Line {
    let what = match durability {
        Durability::Recorded => "recorded",
        _ => "accepted",
    };
    Line {
        figure: format!("{what} orders in batches"),
        baseline: "bare axum handler, one order a request".into(),
        unit: "orders/s",
        bound: Bound::AtLeast(least),
        setting: format!(
            "{} concurrent buyers, the client crate's OrderBatcher with {} requests at a time, {} orders a request in the repeats; every role in one \
             process, the client in another, all on this machine, {} s after a warm-up",
            options.connections,
            flights(options),
            batches.join(", "),
            options.seconds
        ),
        samples,
    }
}
