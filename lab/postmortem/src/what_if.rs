//! Parameters that a reader may change to see their effect. Each case has its own defaults, those
//! of its scenario.

use std::time::Duration;

/// A parameter that can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knob {
    /// Number of buyers.
    Buyers,
    /// Number of units in stock.
    Stock,
    /// Duration for which a dependency does not answer.
    Stall,
    /// Lease of a lock.
    Lease,
    /// Number of processes that sell.
    Instances,
}

impl Knob {
    /// Returns the option on the command line.
    pub const fn flag(self) -> &'static str {
        match self {
            Self::Buyers => "--buyers",
            Self::Stock => "--stock",
            Self::Stall => "--stall",
            Self::Lease => "--lease",
            Self::Instances => "--instances",
        }
    }
}

/// Values that a reader has set; `None` stands for the case's default.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WhatIf {
    /// Number of buyers.
    pub buyers: Option<usize>,
    /// Number of units in stock.
    pub stock: Option<u64>,
    /// Scenario time for which a dependency does not answer.
    pub stall: Option<Duration>,
    /// Lease of a lock, in scenario time.
    pub lease: Option<Duration>,
    /// Number of processes that sell.
    pub instances: Option<usize>,
}

impl WhatIf {
    /// Returns the parameters that were set.
    pub fn changed(&self) -> Vec<Knob> {
        let changed = [
            (self.buyers.is_some(), Knob::Buyers),
            (self.stock.is_some(), Knob::Stock),
            (self.stall.is_some(), Knob::Stall),
            (self.lease.is_some(), Knob::Lease),
            (self.instances.is_some(), Knob::Instances),
        ];
        changed
            .into_iter()
            .filter_map(|(changed, knob)| changed.then_some(knob))
            .collect()
    }
}
