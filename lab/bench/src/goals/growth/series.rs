//! A series: servers on which one kind of thing becomes more, step by step.

use std::{ops::Range, time::Duration};

use anyhow::{Result, ensure};
use client::ItemState;
use serde::Serialize;

use super::{
    HOT, audits,
    calls::{Calls, Orders, Turn, in_turns},
    env::GrowthEnv,
    fill,
    idle::{self, Idle},
    results::Results,
};
use crate::options::{GrowthOptions, LedgerKind, Options, SeriesKind};

fn steps(of: SeriesKind, options: &GrowthOptions) -> Vec<u64> {
    let size = options.size(of);
    match of {
        SeriesKind::OpenItems | SeriesKind::ClosedItems => {
            ascending([0, size / 20, size / 4, size])
        }
        SeriesKind::Orders => ascending([0, size / 100, size / 10, size]),
        SeriesKind::OrdersAndItems => ascending([0, size]),
    }
}

/// Without repeats, which small sizes have.
pub fn ascending<const N: usize>(steps: [u64; N]) -> Vec<u64> {
    let mut steps = steps.to_vec();
    steps.dedup();
    steps
}

/// A step: what the ledger has, and what was measured with it.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// Open items besides the hot one.
    pub open_items: u64,
    /// Closed items.
    pub closed_items: u64,
    /// Orders of the hot item, those of earlier steps' loads included.
    pub orders: u64,
    /// From the start of the service until it is ready.
    pub start_ms: f64,
    /// Milliseconds of processor time, in all stores together, that each new item needs until all are
    /// audited. `None`: the step has no new item, or the system does not report it.
    pub until_audited_cpu_ms: Option<f64>,
    /// Processor time without any request, once all items were audited.
    pub idle: Option<Idle>,
    /// Single calls.
    #[serde(flatten)]
    pub calls: Calls,
    /// Orders of the hot item.
    #[serde(rename = "orders_of_the_hot_item")]
    pub hot: Orders,
    /// The same of a new service that has nothing else, in turns with them.
    #[serde(rename = "orders_on_an_empty_ledger")]
    pub empty: Orders,
    /// Both of these, turn by turn.
    pub turns: Vec<Turn>,
    /// Units of both that are not accounted for at its end. Must be 0.
    pub drift: u64,
    /// Units of both that were sold beyond the stock. Must be 0.
    pub oversold: u64,
}

/// Measures every step of a series, and writes the results after each.
pub async fn measure(
    ledger: LedgerKind,
    kind: SeriesKind,
    options: &Options,
    results: &mut Results,
) -> Result<()> {
    let mut env = GrowthEnv::start(ledger).await?;
    fill::open(&env, HOT).await?;
    let mut present = 0;
    for (number, size) in steps(kind, &options.growth).into_iter().enumerate() {
        eprintln!("P12: {ledger}, {size} {kind}");
        grow(&mut env, kind, present..size, options).await?;
        present = size;
        let step = step(&mut env, ledger, &format!("step-{number}"), options).await?;
        step.ensure_has(kind, size)?;
        results.add(ledger, kind, step)?;
    }
    Ok(())
}

/// Adds what is missing.
async fn grow(
    env: &mut GrowthEnv,
    kind: SeriesKind,
    missing: Range<u64>,
    options: &Options,
) -> Result<()> {
    env.restart_to_fill().await?;
    match kind {
        SeriesKind::OpenItems => fill::items(env, missing, ItemState::Open).await?,
        SeriesKind::ClosedItems => fill::items(env, missing, ItemState::Closed).await?,
        SeriesKind::Orders => add_orders(env, missing).await?,
        SeriesKind::OrdersAndItems => {
            let items = if missing.is_empty() {
                0
            } else {
                options.growth.items
            };
            fill::items(env, 0..items / 2, ItemState::Open).await?;
            fill::items(env, items / 2..items, ItemState::Closed).await?;
            add_orders(env, missing).await?;
        }
    }
    env.until_at_rest(HOT).await?;
    env.database.tidy().await
}

/// Orders of the earlier loads on the hot item count as well.
async fn add_orders(env: &GrowthEnv, missing: Range<u64>) -> Result<()> {
    let present = env.database.orders(HOT).await?;
    let more = missing.end.saturating_sub(present);
    fill::paid_orders(env, HOT, missing.start..missing.start + more).await
}

async fn step(
    env: &mut GrowthEnv,
    ledger: LedgerKind,
    run: &str,
    options: &Options,
) -> Result<Step> {
    let open_items = env.database.items("open").await?.saturating_sub(1);
    let closed_items = env.database.items("closed").await?;
    let orders = env.database.orders(HOT).await?;
    let [settle, time] =
        [options.growth.settle_seconds, options.growth.idle_seconds].map(Duration::from_secs);
    let until_audited_cpu_ms = audits::make(env, settle).await?;
    let start_ms = env.restart().await?;
    env.until_at_rest(HOT).await?;
    let empty_env = empty(ledger).await?;
    let idle = idle::measure(env, settle, time).await?;
    let calls = Calls::measure(env).await?;
    let ([hot, empty], turns) = in_turns([env, &empty_env], run, options).await?;
    let reports = [
        env.until_at_rest(HOT).await?,
        empty_env.until_at_rest(HOT).await?,
    ];
    Ok(Step {
        open_items,
        closed_items,
        orders,
        start_ms,
        until_audited_cpu_ms,
        idle,
        calls,
        hot,
        empty,
        turns,
        drift: reports.iter().map(|report| report.drift).sum(),
        oversold: reports.iter().map(|report| report.oversold).sum(),
    })
}

/// A service that has the hot item and nothing else, to take turns with.
async fn empty(ledger: LedgerKind) -> Result<GrowthEnv> {
    let env = GrowthEnv::start(ledger).await?;
    fill::open(&env, HOT).await?;
    env.until_at_rest(HOT).await?;
    env.database.tidy().await?;
    Ok(env)
}

impl Step {
    /// What the ledger has of this kind.
    pub fn size(&self, kind: SeriesKind) -> u64 {
        match kind {
            SeriesKind::OpenItems => self.open_items,
            SeriesKind::ClosedItems => self.closed_items,
            SeriesKind::Orders | SeriesKind::OrdersAndItems => self.orders,
        }
    }

    fn ensure_has(&self, kind: SeriesKind, size: u64) -> Result<()> {
        let found = self.size(kind);
        ensure!(found >= size, "the ledger has {found} {kind}, not {size}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ascending;

    #[test]
    fn a_small_size_has_no_step_twice() {
        assert_eq!(ascending([0, 1000, 5000, 20_000]), [0, 1000, 5000, 20_000]);
        assert_eq!(ascending([0, 0, 1, 5]), [0, 1, 5]);
    }
}
