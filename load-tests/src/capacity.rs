//! Capacity: the highest rate of orders at which a service responds in time.
//!
//! This is an open loop. Requests start by a schedule, whether earlier ones have completed or not,
//! as those of independent buyers do. Latency counts from the scheduled time. A closed loop sends
//! fewer requests to a stalled service, so it does not see how long buyers would have waited
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

/// Finds the highest rate, prints the table, and writes chart and JSON. Returns whether a rate was
/// found and every audit is good.
pub async fn run(options: &CapacityOptions) -> Result<bool> {
    let driver = Driver::new(options)?;
    let mut report = Report::new(options);
    let rates = Rates {
        first: options.first_rate,
        max: options.most_rate,
        close_percent: options.close_percent,
    };
    report.highest_rate = highest(rates, async |rate| {
        is_sustained(&driver, rate, options.tries, &mut report.steps).await
    })
    .await?;
    report.write(&options.out)?;
    Ok(report.print(&options.out))
}

/// Whether the service sustains the rate in one of several tries. A single failure may be caused by
/// other work of the machine.
async fn is_sustained(
    driver: &Driver,
    rate: u64,
    tries: u32,
    steps: &mut Vec<Step>,
) -> Result<bool> {
    for _ in 0..tries {
        let step = driver.step(rate).await?;
        eprintln!("{step}");
        let sustained = step.sustained;
        steps.push(step);
        if sustained {
            return Ok(true);
        }
    }
    Ok(false)
}
