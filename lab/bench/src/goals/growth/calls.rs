//! Calls of a service that has nothing else to do, and orders at a modest rate.

use std::{
    iter::zip,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use client::PageRequest;
use reporting::statistics::median;
use serde::Serialize;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{HOT, env::GrowthEnv};
use crate::{
    buyers::{self, CROWD},
    open_loop::{Latencies, OpenLoop},
    options::Options,
    test_env::METRICS_FRESH_FOR,
};

/// Each call is made so often. The median does not show that the first one fills caches.
const CALLS: usize = 5;
/// The same for `/metrics`, each of which waits for new metrics first.
const METRICS_CALLS: usize = 3;
/// Enough that at a modest rate a request rarely finds its connection still waiting.
const CONNECTIONS: u64 = 64;
const WARM_SECONDS: u64 = 1;
/// Most turns of each of the services that take turns.
const TURNS_MAX: usize = 4;

/// Milliseconds of calls: medians.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Calls {
    /// The audit of the hot item.
    pub audit_ms: f64,
    /// The same with a look at every order.
    pub full_audit_ms: f64,
    /// `/metrics`, rendered anew.
    pub metrics_ms: f64,
    /// Length of its answer.
    pub metrics_bytes: u64,
    /// The first page of all items.
    pub items_page_ms: f64,
    /// The first page of the hot item's orders.
    pub orders_page_ms: f64,
}

impl Calls {
    /// Makes all calls, one after the other.
    pub async fn measure(env: &GrowthEnv) -> Result<Self> {
        let page = PageRequest::default();
        let (metrics_ms, metrics_bytes) = metrics(env).await?;
        Ok(Self {
            audit_ms: median_ms(async || Ok(env.admin.audit(HOT).await?)).await?,
            full_audit_ms: median_ms(async || Ok(env.patient.full_audit(HOT).await?)).await?,
            metrics_ms,
            metrics_bytes,
            items_page_ms: median_ms(async || Ok(env.admin.items(&page).await?)).await?,
            orders_page_ms: median_ms(async || Ok(env.admin.item_orders(HOT, None, &page).await?))
                .await?,
        })
    }
}

async fn median_ms<T>(call: impl AsyncFn() -> Result<T>) -> Result<f64> {
    let mut took = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let began = Instant::now();
        call().await?;
        took.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(median(&took))
}

/// Milliseconds and bytes. The pause before each call makes the service render the text again.
async fn metrics(env: &GrowthEnv) -> Result<(f64, u64)> {
    let (mut took, mut bytes) = (Vec::with_capacity(METRICS_CALLS), 0);
    for _ in 0..METRICS_CALLS {
        sleep(METRICS_FRESH_FOR).await;
        let began = Instant::now();
        bytes = env.client.metrics().await?.len() as u64;
        took.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    Ok((median(&took), bytes))
}

/// Milliseconds of recorded orders in an open loop.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Orders {
    /// Half were answered within this.
    pub p50_ms: f64,
    /// 99 of 100 were.
    pub p99_ms: f64,
    /// All were.
    pub max_ms: f64,
    /// Number of measured orders.
    pub measured: u64,
}

/// A load on the hot item, which begins with a warm-up of [`WARM`].
pub struct Load<'a> {
    /// The service.
    pub env: &'a GrowthEnv,
    /// Prefix of its keys, unique in this environment.
    pub run: String,
    /// Ends it before its time.
    pub until: CancellationToken,
    /// Longest time after the warm-up.
    pub time: Duration,
}

/// Time of the warm-up, whose orders are not measured.
pub const WARM: Duration = Duration::from_secs(WARM_SECONDS);

impl Load<'_> {
    /// Runs it.
    pub async fn run(self, options: &Options) -> Result<Orders> {
        Ok(Orders::from(&self.latencies(options).await?))
    }

    async fn latencies(self, options: &Options) -> Result<Latencies> {
        let rate = options.growth.rate;
        let load = OpenLoop {
            address: self.env.address.clone(),
            item: HOT.into(),
            tokens: (0..CROWD)
                .map(buyers::token)
                .collect::<Result<Arc<[_]>>>()?,
            status: 201,
            connections: CONNECTIONS,
            rate: rate as f64,
            warm: rate * WARM_SECONDS,
            orders: (rate * u64::try_from(self.time.as_millis())?).div_ceil(1000),
            run: self.run,
            until: self.until,
        };
        load.run().await
    }
}

impl From<&Latencies> for Orders {
    fn from(latencies: &Latencies) -> Self {
        Self {
            p50_ms: latencies.answered_within(50.0),
            p99_ms: latencies.answered_within(99.0),
            max_ms: latencies.answered_within(100.0),
            measured: latencies.count(),
        }
    }
}

/// Orders of a turn of each.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Turn {
    /// Of the service that is measured.
    pub hot: Orders,
    /// Of the one with an empty ledger.
    pub empty: Orders,
}

/// Orders of two services' hot items, in turns of a second at least. What a machine does for some seconds,
/// it does to both. Each has `--seconds` altogether, and each second turn begins with the other one. Returns
/// the orders of all turns, and then of each.
pub async fn in_turns(
    envs: [&GrowthEnv; 2],
    run: &str,
    options: &Options,
) -> Result<([Orders; 2], Vec<Turn>)> {
    let turns = usize::try_from(options.seconds)?.clamp(1, TURNS_MAX);
    let time = Duration::from_secs(options.seconds) / u32::try_from(turns)?;
    let mut latencies = <[Latencies; 2]>::default();
    let mut of_turns = <[Vec<Orders>; 2]>::default();
    for turn in 0..turns {
        for place in [turn % 2, (turn + 1) % 2] {
            let load = Load {
                env: envs[place],
                run: format!("{run}.{turn}"),
                until: CancellationToken::new(),
                time,
            };
            let measured = load.latencies(options).await?;
            of_turns[place].push(Orders::from(&measured));
            latencies[place].add(measured);
        }
    }
    let [hot, empty] = of_turns;
    let of_turns = zip(hot, empty).map(|(hot, empty)| Turn { hot, empty });
    Ok((latencies.each_ref().map(Orders::from), of_turns.collect()))
}
