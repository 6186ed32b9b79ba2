//! The goals, one file each.
//!
//! Each has `pub async fn measure(bench: &Options) -> Result<Measured>`.

use std::pin::Pin;

use anyhow::Result;

use crate::{goal::Measured, options::Options};

mod accepted_orders;
mod baselines;
mod batches;
mod growth;
mod latency;
mod lock;
mod memory;
mod recorded_orders;
mod recorder;
mod refusals;
mod shards;
mod stock;

// Shared by the goals that run in process.
mod crowd;
mod in_process;
mod raw;
mod servers;

/// A goal and its measurement.
pub struct Goal {
    /// Name in `docs/performance.md`.
    pub name: &'static str,
    /// Runs the measurement.
    pub measure: for<'a> fn(&'a Options) -> Measuring<'a>,
}

/// Goals that a run measures only if `--only` names them: they take as long as all others.
const ONLY_BY_NAME: [&str; 1] = ["P12"];

impl Goal {
    /// Whether a run without `--only` measures it.
    pub fn is_in_every_run(&self) -> bool {
        !ONLY_BY_NAME.contains(&self.name)
    }
}

/// A running measurement.
pub type Measuring<'a> = Pin<Box<dyn Future<Output = Result<Measured>> + 'a>>;

/// Every goal, in the order in which they are measured and reported.
pub const ALL: &[Goal] = &[
    Goal {
        name: "P1",
        measure: |options| Box::pin(recorded_orders::measure(options)),
    },
    Goal {
        name: "P1a",
        measure: |options| Box::pin(accepted_orders::measure(options)),
    },
    Goal {
        name: "P2",
        measure: |options| Box::pin(refusals::measure(options)),
    },
    Goal {
        name: "P3",
        measure: |options| Box::pin(stock::measure(options)),
    },
    Goal {
        name: "P4",
        measure: |options| Box::pin(recorder::measure(options)),
    },
    Goal {
        name: "P5",
        measure: |options| Box::pin(latency::measure(options)),
    },
    Goal {
        name: "P6",
        measure: |options| Box::pin(memory::measure(options)),
    },
    Goal {
        name: "P7",
        measure: |options| Box::pin(lock::measure(options)),
    },
    Goal {
        name: "P8",
        measure: |options| Box::pin(shards::measure(options)),
    },
    Goal {
        name: "P9",
        measure: |options| Box::pin(baselines::measure(options)),
    },
    Goal {
        name: "P10",
        measure: |options| Box::pin(batches::measure(options)),
    },
    Goal {
        name: "P12",
        measure: |options| Box::pin(growth::measure(options)),
    },
];
