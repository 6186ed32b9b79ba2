//! What a scenario is: buyers who come for one reason, and what may happen to the units meanwhile.

use std::time::Duration;

use crate::{buyers::Kind, scenarios};

/// A scenario.
#[derive(Debug)]
pub struct Scenario {
    /// What the command line calls it.
    pub name: &'static str,
    /// Which items its buyers come for.
    pub shelf: Shelf,
    /// Its buyers pay, so the run needs the payment secret.
    pub pays: bool,
    /// It has shown nothing if no unit came back and was bought again.
    pub must_resell: bool,
    /// Of a hundred buyers, so many of each kind.
    pub kinds: &'static [(u32, Kind)],
}

/// Every scenario.
pub static ALL: [&Scenario; 6] = [
    &scenarios::RUSH,
    &scenarios::RETRY_STORM,
    &scenarios::LIMIT_ABUSERS,
    &scenarios::WINDOW_SHOPPERS,
    &scenarios::WHOLE_LIFE,
    &scenarios::RETURNS,
];

/// What may happen to the units of an item, which decides which answers may be given.
///
/// In a mix, scenarios of the same shelf sell the same items, and no buyer of another shelf makes their rules weaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shelf {
    /// What is sold stays sold: the stock only falls, so a refusal stands.
    Kept,
    /// Buyers give units back.
    Returned,
    /// Buyers give units back, and holds end while the crowd is there.
    Expiring,
}

/// Longer than any run, and than anybody looks at its result.
const HOLD_OF_A_DAY: Duration = Duration::from_secs(24 * 3600);

impl Shelf {
    /// Whether units may come back.
    pub fn returns(self) -> bool {
        self != Self::Kept
    }

    /// How long an order holds its units; `short` is what the run was told.
    pub fn hold(self, short: Duration) -> Duration {
        if self == Self::Expiring {
            short
        } else {
            HOLD_OF_A_DAY
        }
    }

    /// A part of the items' names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Returned => "returned",
            Self::Expiring => "expiring",
        }
    }
}

/// The scenario of this name.
pub fn named(name: &str) -> Option<&'static Scenario> {
    ALL.into_iter().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use super::ALL;

    /// A mix multiplies the weights of the scenarios and of their kinds, which is right only then.
    #[test]
    fn the_kinds_of_every_scenario_are_of_a_hundred_buyers() {
        for scenario in ALL {
            assert_eq!(
                scenario.kinds.iter().map(|(weight, _)| weight).sum::<u32>(),
                100,
                "{}",
                scenario.name
            );
        }
    }
}
