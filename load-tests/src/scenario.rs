//! Scenarios: the behaviors of virtual users, and what may happen to the units they buy.

use std::time::Duration;

use crate::{behaviors::Behavior, scenarios};

/// A scenario.
#[derive(Debug)]
pub struct Scenario {
    /// The name on the command line.
    pub name: &'static str,
    /// What may happen to the units of its items.
    pub policy: ReturnPolicy,
    /// Whether a behavior pays, so that the run needs the payment secret.
    pub pays: bool,
    /// Whether the run fails if no unit returned and was bought again.
    pub must_resell: bool,
    /// The behaviors, with their shares of a hundred virtual users.
    pub behaviors: &'static [(u32, Behavior)],
}

/// All scenarios.
pub static ALL: [&Scenario; 6] = [
    &scenarios::RUSH,
    &scenarios::RETRY_STORM,
    &scenarios::LIMIT_ABUSERS,
    &scenarios::WINDOW_SHOPPERS,
    &scenarios::WHOLE_LIFE,
    &scenarios::RETURNS,
];

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

/// The scenario with this name.
pub fn named(name: &str) -> Option<&'static Scenario> {
    ALL.into_iter().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use super::ALL;

    /// A mix multiplies the weights of scenarios and behaviors, which requires equal sums.
    #[test]
    fn the_weights_of_every_scenario_add_up_to_a_hundred() {
        for scenario in ALL {
            assert_eq!(
                scenario
                    .behaviors
                    .iter()
                    .map(|(weight, _)| weight)
                    .sum::<u32>(),
                100,
                "{}",
                scenario.name
            );
        }
    }
}
