//! P12: growth. What the service costs at rest, and how long its calls take, as items, orders and
//! expiring holds become more.
//!
//! Each series has its own servers, and grows by one kind of thing: open items, closed and settled
//! items, orders of the hot item, all of these together, holds that expire together, or waves of one
//! moment. The first step of a series has none of them. It is the baseline of the others; that of the
//! orders is a new service with an empty ledger, which takes turns with the service of the step.
//!
//! The lines of the report compare the last step of a series with its baseline. `growth.json`,
//! `growth.md` and the chart `growth.svg` have every step.

use anyhow::Result;
use clap::ValueEnum;

use crate::{
    goal::Measured,
    options::{LedgerKind, Options, SeriesKind},
};

mod audits;
mod calls;
mod chart;
mod database;
mod env;
mod expiry;
mod fill;
mod idle;
mod lines;
mod results;
#[cfg(test)]
mod samples;
mod series;
mod waves;

use env::GrowthEnv;
use results::Results;

/// The item whose orders are measured.
const HOT: &str = "hot";

/// Each step is measured once, whatever `--repeats` is.
pub async fn measure(options: &Options) -> Result<Measured> {
    let mut results = Results::new(options).await;
    for ledger in &options.growth.ledgers {
        on(*ledger, options, &mut results).await?;
    }
    Ok(Measured {
        goal: "P12",
        title: "growth",
        lines: lines::of(options, &results),
    })
}

async fn on(ledger: LedgerKind, options: &Options, results: &mut Results) -> Result<()> {
    for kind in SeriesKind::value_variants().iter().copied() {
        if options.growth.size(kind) > 0 {
            series::measure(ledger, kind, options, results).await?;
        }
    }
    if options.growth.holds > 0 {
        expiry::measure(ledger, options, results).await?;
    }
    if options.growth.waves > 0 {
        eprintln!(
            "P12: {ledger}, {} waves of one moment",
            options.growth.waves
        );
        let env = GrowthEnv::start(ledger).await?;
        results.add_waves(ledger, waves::measure(&env, options).await?)?;
    }
    Ok(())
}
