//! Counts of a variant's run, and the verdict. The verdict depends on these counts alone, never on
//! the code of the variant.

use std::fmt;

use serde::Serialize;

use crate::timeline::{Doing, Timeline};

/// A kind of count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Units sold beyond the stock.
    Oversold,
    /// Units that are left although a buyer was refused, or that can never be sold.
    Stranded,
    /// Concurrent holders of the lock.
    HoldersAtOnce,
    /// Longest wait of an actor, in seconds of scenario time.
    StuckSeconds,
    /// Writes that were overwritten by an actor that had not read them.
    LostUpdates,
    /// Writes of an actor that had lost the lock, after its successor had begun.
    ZombieWrites,
    /// Acknowledged orders that are lost.
    LostOrders,
    /// Orders that took more units than requested.
    DoubleTaken,
    /// Buyers who were charged and get neither goods nor money.
    ChargedInVain,
    /// Tokens that were issued to two holders.
    DuplicateTokens,
    /// Waiters that were woken and had to wait again.
    #[serde(rename = "vain_wake_ups")]
    UnnecessaryWakeUps,
    /// Rounds without a winner.
    FailedRounds,
    /// Requests that failed although they could have been served.
    FailedRequests,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Oversold => "units oversold",
            Self::Stranded => "units stranded",
            Self::HoldersAtOnce => "concurrent holders",
            Self::StuckSeconds => "seconds stuck",
            Self::LostUpdates => "lost updates",
            Self::ZombieWrites => "zombie writes",
            Self::LostOrders => "lost orders",
            Self::DoubleTaken => "orders with two units",
            Self::ChargedInVain => "buyers charged without goods",
            Self::DuplicateTokens => "duplicate tokens",
            Self::UnnecessaryWakeUps => "unnecessary wake-ups",
            Self::FailedRounds => "rounds without a winner",
            Self::FailedRequests => "failed requests",
        })
    }
}

/// A judged count and its bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reading {
    /// Kind of count.
    pub measure: Measure,
    /// Measured value.
    pub value: f64,
    /// Largest value of a variant that holds.
    pub most: f64,
}

impl Reading {
    /// Returns whether the value is within its bound.
    pub fn holds(&self) -> bool {
        self.value <= self.most
    }
}

/// All counts of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Measurements {
    /// Units that existed.
    pub stock: u64,
    /// Units that buyers were promised.
    pub units_sold: u64,
    /// Units sold beyond the stock.
    pub oversold: u64,
    /// Units that could not be sold.
    pub stranded: u64,
    /// Largest number of concurrent holders.
    pub holders_at_once: u64,
    /// Longest wait in seconds of scenario time.
    pub longest_stuck_seconds: f64,
    /// Counts on which the verdict depends.
    pub readings: Vec<Reading>,
}

impl Measurements {
    /// Creates empty measurements.
    pub fn new() -> Self {
        Self::default()
    }

    /// The concurrent holders and the longest wait that the timeline shows.
    pub fn of(timeline: &Timeline) -> Self {
        Self::new()
            .holders(timeline.holders_at_once())
            .stuck(timeline.longest(Doing::Waiting))
    }

    /// Sets the units that existed, those that were promised and those that could not be sold, and
    /// makes the verdict depend on them: none may be oversold, and none stranded.
    pub fn judge_sale(self, stock: u64, units_sold: u64, stranded: u64) -> Self {
        self.sold(stock, units_sold)
            .stranded(stranded)
            .judge_oversold()
            .judge_stranded()
    }

    /// Sets the units that existed and those that were promised, and derives the oversold ones.
    pub fn sold(mut self, stock: u64, units_sold: u64) -> Self {
        (self.stock, self.units_sold) = (stock, units_sold);
        self.oversold = units_sold.saturating_sub(stock);
        self
    }

    /// Sets the units that could not be sold.
    pub fn stranded(mut self, units: u64) -> Self {
        self.stranded = units;
        self
    }

    /// Sets the largest number of concurrent holders.
    pub fn holders(mut self, holders: u64) -> Self {
        self.holders_at_once = holders;
        self
    }

    /// Sets the longest wait, in seconds of scenario time.
    pub fn stuck(mut self, seconds: f64) -> Self {
        self.longest_stuck_seconds = seconds;
        self
    }

    /// Makes the verdict depend on oversold units: none are allowed.
    pub fn judge_oversold(self) -> Self {
        let value = self.oversold;
        self.judge(Measure::Oversold, value, 0)
    }

    /// Makes the verdict depend on stranded units: none are allowed.
    pub fn judge_stranded(self) -> Self {
        let value = self.stranded;
        self.judge(Measure::Stranded, value, 0)
    }

    /// Makes the verdict depend on concurrent holders: one is allowed.
    pub fn judge_holders(self) -> Self {
        let value = self.holders_at_once;
        self.judge(Measure::HoldersAtOnce, value, 1)
    }

    /// Makes the verdict depend on the longest wait, with a limit in seconds of scenario time.
    pub fn judge_stuck(mut self, limit_seconds: f64) -> Self {
        let value = self.longest_stuck_seconds;
        self.readings.push(Reading {
            measure: Measure::StuckSeconds,
            value,
            most: limit_seconds,
        });
        self
    }

    /// Makes the verdict depend on this count.
    #[expect(clippy::cast_precision_loss, reason = "counts of a demonstration")]
    pub fn judge(mut self, measure: Measure, value: u64, most: u64) -> Self {
        self.readings.push(Reading {
            measure,
            value: value as f64,
            most: most as f64,
        });
        self
    }

    /// Returns whether all judged counts are within their bounds. Without a judged count nothing is
    /// proved.
    pub fn holds(&self) -> bool {
        !self.readings.is_empty() && self.readings.iter().all(Reading::holds)
    }
}

#[cfg(test)]
mod tests {
    use super::{Measure, Measurements};

    #[test]
    fn one_count_beyond_its_bound_fails_the_verdict() {
        assert!(
            Measurements::new()
                .sold(10, 10)
                .judge_oversold()
                .judge_stranded()
                .holds()
        );
        assert!(
            !Measurements::new()
                .sold(10, 11)
                .judge_oversold()
                .judge_stranded()
                .holds()
        );
        assert!(
            !Measurements::new()
                .sold(10, 9)
                .stranded(1)
                .judge_oversold()
                .judge_stranded()
                .holds()
        );
        assert!(
            !Measurements::new()
                .judge(Measure::LostUpdates, 1, 0)
                .holds()
        );
    }

    #[test]
    fn counts_that_are_not_judged_are_ignored_and_a_verdict_needs_one() {
        assert!(
            Measurements::new()
                .holders(2)
                .sold(1, 1)
                .judge_oversold()
                .holds(),
            "concurrent holders that are not judged"
        );
        assert!(!Measurements::new().sold(1, 1).holds());
    }
}
