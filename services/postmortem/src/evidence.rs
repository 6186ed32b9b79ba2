//! What was counted after a way was played, and whether it holds. The verdict comes from here alone, never from what the code looks like.

use std::fmt;

use serde::Serialize;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Units sold beyond the stock.
    Oversold,
    /// Units that are left while somebody who could take them was refused, or that nobody can ever take.
    Stranded,
    /// Actors inside the lock at the same moment.
    HoldersAtOnce,
    /// Seconds of the story for which the one who was worst off stood still.
    StuckSeconds,
    /// Writes that were overwritten by somebody who had not seen them.
    LostUpdates,
    /// Writes by somebody who had lost the lock, after its successor had begun.
    ZombieWrites,
    /// Orders that were acknowledged and are gone.
    LostOrders,
    /// Orders that got more units than they asked for.
    DoubleTaken,
    /// Buyers who were charged and get neither goods nor money.
    ChargedInVain,
    /// The same token given to two holders.
    DuplicateTokens,
    /// Waiters that were woken for nothing.
    VainWakeUps,
    /// Attempts that nobody won.
    FailedRounds,
    /// Requests that got an error although they could have been served.
    FailedRequests,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Oversold => "units oversold",
            Self::Stranded => "units stranded",
            Self::HoldersAtOnce => "holders at once",
            Self::StuckSeconds => "seconds stuck",
            Self::LostUpdates => "lost updates",
            Self::ZombieWrites => "zombie writes",
            Self::LostOrders => "lost orders",
            Self::DoubleTaken => "orders with two units",
            Self::ChargedInVain => "charged in vain",
            Self::DuplicateTokens => "duplicate tokens",
            Self::VainWakeUps => "wake-ups in vain",
            Self::FailedRounds => "rounds without a winner",
            Self::FailedRequests => "failed requests",
        })
    }
}

/// One count, and the most that it may be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Reading {
    /// What.
    pub measure: Measure,
    /// How much there was.
    pub value: f64,
    /// The most that a way which holds may have.
    pub most: f64,
}

impl Reading {
    /// Whether it is within what it may be.
    pub fn holds(&self) -> bool {
        self.value <= self.most
    }
}

/// Everything that was counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Evidence {
    /// Units that existed.
    pub stock: u64,
    /// Units that buyers were promised.
    pub units_sold: u64,
    /// Of these, beyond the stock.
    pub oversold: u64,
    /// Units that nobody could get.
    pub stranded: u64,
    /// The most actors that were inside at once.
    pub holders_at_once: u64,
    /// For how long the worst off stood still, in seconds of the story.
    pub longest_stuck_seconds: f64,
    /// What the verdict is made of.
    pub readings: Vec<Reading>,
}

impl Evidence {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Units that existed and units that were promised, and so what was oversold.
    pub fn sold(mut self, stock: u64, units_sold: u64) -> Self {
        (self.stock, self.units_sold) = (stock, units_sold);
        self.oversold = units_sold.saturating_sub(stock);
        self
    }

    /// Units that nobody could get.
    pub fn stranded(mut self, units: u64) -> Self {
        self.stranded = units;
        self
    }

    /// The most actors that were inside at once.
    pub fn holders(mut self, at_once: u64) -> Self {
        self.holders_at_once = at_once;
        self
    }

    /// For how long the worst off stood still, in seconds of the story.
    pub fn stuck(mut self, seconds: f64) -> Self {
        self.longest_stuck_seconds = seconds;
        self
    }

    /// The verdict depends on this: nothing oversold.
    pub fn judge_oversold(self) -> Self {
        let value = self.oversold;
        self.judge(Measure::Oversold, value, 0)
    }

    /// The verdict depends on this: nothing stranded.
    pub fn judge_stranded(self) -> Self {
        let value = self.stranded;
        self.judge(Measure::Stranded, value, 0)
    }

    /// The verdict depends on this: never two inside.
    pub fn judge_holders(self) -> Self {
        let value = self.holders_at_once;
        self.judge(Measure::HoldersAtOnce, value, 1)
    }

    /// The verdict depends on this: nobody stood still for longer than so many seconds of the story.
    pub fn judge_stuck(mut self, most_seconds: f64) -> Self {
        let value = self.longest_stuck_seconds;
        self.readings.push(Reading {
            measure: Measure::StuckSeconds,
            value,
            most: most_seconds,
        });
        self
    }

    /// The verdict depends on this count.
    #[expect(clippy::cast_precision_loss, reason = "counts of a demonstration")]
    pub fn judge(mut self, measure: Measure, value: u64, most: u64) -> Self {
        self.readings.push(Reading {
            measure,
            value: value as f64,
            most: most as f64,
        });
        self
    }

    /// Whether everything that the verdict depends on is within what it may be. Nothing judged is nothing proved.
    pub fn holds(&self) -> bool {
        !self.readings.is_empty() && self.readings.iter().all(Reading::holds)
    }
}

#[cfg(test)]
mod tests {
    use super::{Evidence, Measure};

    #[test]
    fn one_count_beyond_its_bound_is_enough_to_fail() {
        assert!(
            Evidence::new()
                .sold(10, 10)
                .judge_oversold()
                .judge_stranded()
                .holds()
        );
        assert!(
            !Evidence::new()
                .sold(10, 11)
                .judge_oversold()
                .judge_stranded()
                .holds()
        );
        assert!(
            !Evidence::new()
                .sold(10, 9)
                .stranded(1)
                .judge_oversold()
                .judge_stranded()
                .holds()
        );
        assert!(!Evidence::new().judge(Measure::LostUpdates, 1, 0).holds());
    }

    #[test]
    fn what_is_not_judged_does_not_count_and_nothing_judged_proves_nothing() {
        assert!(
            Evidence::new()
                .holders(2)
                .sold(1, 1)
                .judge_oversold()
                .holds(),
            "two holders, and no harm done"
        );
        assert!(!Evidence::new().sold(1, 1).holds());
    }
}
