//! What a reader may change to see what happens then. Every case has values of its own, those of its story.

use std::time::Duration;

/// Something that can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knob {
    /// How many want to buy.
    Buyers,
    /// Units that exist.
    Stock,
    /// For how long something does not answer.
    Stall,
    /// For how long a lock is given.
    Lease,
    /// Processes that sell.
    Instances,
}

impl Knob {
    /// Its option on the command line.
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

/// What a reader has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WhatIf {
    /// How many want to buy.
    pub buyers: Option<usize>,
    /// Units that exist.
    pub stock: Option<u64>,
    /// For how long something does not answer, in the story.
    pub stall: Option<Duration>,
    /// For how long a lock is given, in the story.
    pub lease: Option<Duration>,
    /// Processes that sell.
    pub instances: Option<usize>,
}

impl WhatIf {
    /// Everything that was changed.
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
