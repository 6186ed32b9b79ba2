//! What may happen to the units that are bought.

use std::time::Duration;

/// What may happen to the units of an item. It decides which outcomes are allowed.
///
/// In a mix, scenarios with the same policy share their items. Scenarios with other policies have
/// other items, so they do not weaken the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReturnPolicy {
    /// Units never return, so a refusal is final.
    Final,
    /// Buyers return units.
    Returned,
    /// Buyers return units, and holds expire during the run.
    Expiring,
}

/// Longer than any run.
const LONG_HOLD: Duration = Duration::from_secs(24 * 3600);

impl ReturnPolicy {
    /// Whether units may return.
    pub fn returns(self) -> bool {
        self != Self::Final
    }

    /// How long an order holds its units; `short` is the hold of `--hold-seconds`.
    pub fn hold(self, short: Duration) -> Duration {
        if self == Self::Expiring {
            short
        } else {
            LONG_HOLD
        }
    }

    /// A part of the items' names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Final => "final",
            Self::Returned => "returned",
            Self::Expiring => "expiring",
        }
    }
}
