//! The capacity: at which rate of orders a service still answers in time.
//!
//! This is an open loop. Requests begin when the schedule says, whether earlier ones have been answered or not, as those of independent buyers
//! do, and latency counts from that moment. A closed loop asks a stalled service less, and so does not see what the buyers would have waited
//! (coordinated omission).

mod chart;
#[cfg(test)]
mod double;
mod meter;
mod options;
mod report;
mod schedule;
mod search;
mod step;

pub use self::options::CapacityOptions;

use anyhow::Result;

use self::{
    report::Report,
    search::{Rates, highest},
    step::{Driver, Step},
};

/// Finds the highest rate, prints the table, writes chart and JSON, and says whether a rate was found and every audit is good.
pub async fn run(options: &CapacityOptions) -> Result<bool> {
    let driver = Driver::new(options)?;
    let mut report = Report::new(options);
    let rates = Rates {
        first: options.first_rate,
        most: options.most_rate,
        close_percent: options.close_percent,
    };
    report.highest_rate = highest(rates, async |rate| {
        holds(&driver, rate, options.tries, &mut report.steps).await
    })
    .await?;
    report.write(&options.out)?;
    Ok(report.print(&options.out))
}

/// Whether one of so many tries holds: a machine that does something else for a moment says nothing of the service.
async fn holds(driver: &Driver, rate: u64, tries: u32, steps: &mut Vec<Step>) -> Result<bool> {
    for _ in 0..tries {
        let step = driver.step(rate).await?;
        eprintln!("{step}");
        let holds = step.holds;
        steps.push(step);
        if holds {
            return Ok(true);
        }
    }
    Ok(false)
}
