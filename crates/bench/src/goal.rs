//! A goal, and what was measured for it.

use std::fmt;

use serde::Serialize;

/// What is promised.
#[derive(Debug, Clone, Copy)]
pub enum Bound {
    /// The ratio of figure to baseline is at least this.
    AtLeast(f64),
    /// The ratio of figure to baseline is at most this.
    AtMost(f64),
    /// Nothing: the line is there to be compared with.
    None,
}

impl Bound {
    /// Whether a ratio keeps the promise.
    pub fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(least) => ratio >= least,
            Self::AtMost(most) => ratio <= most,
            Self::None => true,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, ">= {least}"),
            Self::AtMost(most) => write!(f, "<= {most}"),
            Self::None => f.write_str("-"),
        }
    }
}

/// One repeat: the figure and its baseline, measured one after the other.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Sample {
    /// What Stockade did, in the line's unit.
    pub figure: f64,
    /// What it is held against, in the same unit.
    pub baseline: f64,
    /// Orders that were accepted while the figure was taken.
    pub accepted: u64,
    /// Requests that were refused meanwhile: never counted as orders.
    pub rejected: u64,
    /// Units that counters and logs do not explain. Must be 0.
    pub drift: i64,
    /// Units sold beyond the stock. Must be 0.
    pub oversold: u64,
}

impl Sample {
    /// Figure to baseline.
    pub fn ratio(&self) -> f64 {
        self.figure / self.baseline
    }
}

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Line {
    /// What was measured.
    pub figure: String,
    /// What it is held against.
    pub baseline: String,
    /// Of both.
    pub unit: &'static str,
    /// What is promised.
    pub bound: Bound,
    /// How it was measured: connections, batch sizes, durability.
    pub setting: String,
    /// One for each repeat.
    pub samples: Vec<Sample>,
}

/// All lines of a goal; the first is the goal itself, the others are there to understand it.
#[derive(Debug, Clone)]
pub struct Measured {
    /// `P1` to `P9`.
    pub goal: &'static str,
    /// In a few words.
    pub title: &'static str,
    /// The goal itself first.
    pub lines: Vec<Line>,
}
