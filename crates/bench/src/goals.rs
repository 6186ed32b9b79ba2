//! The goals, a file each.
//!
//! Each has `pub async fn measure(bench: &Bench) -> Result<Measured>`.

use std::pin::Pin;

use anyhow::Result;

use crate::{cli::Bench, goal::Measured};

mod accepted_orders;
mod latency;
mod lock;
mod memory;
mod recorded_orders;
mod recorder;
mod refusals;
mod rivals;
mod shards;
mod stock;

// What the goals in process have in common.
mod crowd;
mod raw;
mod servers;
mod shop;

/// A goal, and how it is measured.
pub struct Goal {
    /// As `docs/performance.md` calls it.
    pub name: &'static str,
    /// Measures it.
    pub measure: for<'a> fn(&'a Bench) -> Measuring<'a>,
}

/// A measurement under way.
pub type Measuring<'a> = Pin<Box<dyn Future<Output = Result<Measured>> + 'a>>;

/// Every goal, in the order in which they are measured and shown.
pub const ALL: &[Goal] = &[
    Goal {
        name: "P1",
        measure: |bench| Box::pin(recorded_orders::measure(bench)),
    },
    Goal {
        name: "P1a",
        measure: |bench| Box::pin(accepted_orders::measure(bench)),
    },
    Goal {
        name: "P2",
        measure: |bench| Box::pin(refusals::measure(bench)),
    },
    Goal {
        name: "P3",
        measure: |bench| Box::pin(stock::measure(bench)),
    },
    Goal {
        name: "P4",
        measure: |bench| Box::pin(recorder::measure(bench)),
    },
    Goal {
        name: "P5",
        measure: |bench| Box::pin(latency::measure(bench)),
    },
    Goal {
        name: "P6",
        measure: |bench| Box::pin(memory::measure(bench)),
    },
    Goal {
        name: "P7",
        measure: |bench| Box::pin(lock::measure(bench)),
    },
    Goal {
        name: "P8",
        measure: |bench| Box::pin(shards::measure(bench)),
    },
    Goal {
        name: "P9",
        measure: |bench| Box::pin(rivals::measure(bench)),
    },
];
