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
    /// The same, and units of carts that fail come back some time after the refusal.
    InCarts,
}

/// Longer than any run.
const LONG_HOLD: Duration = Duration::from_secs(24 * 3600);

/// Items that are sold in carts, at least.
const ITEMS_OF_CARTS: u32 = 8;

impl ReturnPolicy {
    /// Whether units may return.
    pub fn returns(self) -> bool {
        self != Self::Final
    }

    /// Whether holds expire during the run.
    pub fn expires(self) -> bool {
        matches!(self, Self::Expiring | Self::InCarts)
    }

    /// How many items there are, if `--items` is this number: carts need several.
    pub fn items(self, given: u32) -> u32 {
        match self {
            Self::InCarts => given.max(ITEMS_OF_CARTS),
            _ => given,
        }
    }

    /// Whether the item with this number is scarce, so that many carts fail because of it. The
    /// first and the last are: a cart takes its lines by item.
    pub fn is_scarce(self, number: u32) -> bool {
        self == Self::InCarts && number.is_multiple_of(ITEMS_OF_CARTS - 1)
    }

    /// How long an order holds its units; `short` is the hold of `--hold-seconds`.
    pub fn hold(self, short: Duration) -> Duration {
        if self.expires() { short } else { LONG_HOLD }
    }

    /// A part of the items' names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Final => "final",
            Self::Returned => "returned",
            Self::Expiring => "expiring",
            Self::InCarts => "carts",
        }
    }
}
