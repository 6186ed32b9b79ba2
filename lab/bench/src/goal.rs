//! Types of a goal's measurements.

use std::fmt;

use serde::Serialize;

/// Bound of a ratio.
#[derive(Debug, Clone, Copy)]
pub enum Bound {
    /// The ratio of figure to baseline is at least this.
    AtLeast(f64),
    /// The ratio of figure to baseline is at most this.
    AtMost(f64),
    /// No bound: the line serves for comparison.
    None,
}

impl Bound {
    /// Whether a ratio is within the bound.
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
    /// Result of Stockade, in the line's unit.
    pub figure: f64,
    /// Result of the baseline, in the same unit.
    pub baseline: f64,
    /// Orders that were accepted during the measurement of the figure.
    pub accepted: u64,
    /// Requests that were refused meanwhile. They never count as orders.
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
    /// Description of the figure.
    pub figure: String,
    /// Description of the baseline.
    pub baseline: String,
    /// Unit of both.
    pub unit: &'static str,
    /// Bound of the ratio.
    pub bound: Bound,
    /// Setting of the measurement: connections, batch sizes, durability.
    pub setting: String,
    /// One sample per repeat.
    pub samples: Vec<Sample>,
}

/// All lines of a goal. The first is the goal itself, the others explain it.
#[derive(Debug, Clone)]
pub struct Measured {
    /// `P1` to `P12`.
    pub goal: &'static str,
    /// Short title.
    pub title: &'static str,
    /// Lines, the goal itself first.
    pub lines: Vec<Line>,
}
