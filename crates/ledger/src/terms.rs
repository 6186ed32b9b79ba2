//! An item's purchase limit, and queries for what its buyers have.

use domain::{BuyerId, ItemId, OrderId};

/// Grace period after a limit is lowered. Orders that were taken before the change may be recorded
/// after it. An order taken less than this after the change, by the outbox's clock, may therefore
/// still use the old limit. Within this time all segments receive the new limit, and orders that no
/// segment has served give up.
pub(crate) const OLD_LIMIT_GRACE_MS: i64 = 600_000;

/// Value of `limit_before` if there was no limit.
pub(crate) const NO_LIMIT: i64 = i64::MAX;

/// The purchase terms in an item's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub item: ItemId,
    pub limit: Limit,
    /// Whether every recorded order is certain to be at its buyer's home.
    pub without_spillover: bool,
}

/// Number of units that one buyer may hold. `None`: any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Limit {
    pub units: Option<u64>,
    /// The limit before it was lowered, and the time until which that limit still applies.
    pub before: Option<(Option<u64>, i64)>,
}

impl Limit {
    /// The limit for units taken at `taken_ms`.
    pub(crate) fn at(&self, taken_ms: i64) -> Option<u64> {
        match self.before {
            Some((units, until_ms)) if taken_ms < until_ms => {
                units.zip(self.units).map(|(before, now)| before.max(now))
            }
            _ => self.units,
        }
    }
}

/// Query for the units that one buyer of an item has in the ledger.
pub(crate) struct UsageQuery<'a> {
    pub item: &'a ItemId,
    pub buyer: &'a BuyerId,
    /// All orders of the buyer have ids in this range; orders of other buyers may too.
    pub range: [OrderId; 2],
}

#[cfg(test)]
mod tests {
    use super::Limit;

    #[test]
    fn the_old_limit_applies_to_units_taken_before_it_was_lowered() {
        let limit = |units, before| Limit { units, before };
        assert_eq!(limit(Some(2), None).at(5), Some(2));
        assert_eq!(limit(Some(2), Some((Some(5), 100))).at(99), Some(5));
        assert_eq!(limit(Some(2), Some((Some(5), 100))).at(100), Some(2));
        assert_eq!(
            limit(Some(2), Some((None, 100))).at(99),
            None,
            "there was none"
        );
        assert_eq!(
            limit(Some(9), Some((Some(5), 100))).at(99),
            Some(9),
            "it was raised again"
        );
        assert_eq!(
            limit(None, Some((Some(5), 100))).at(99),
            None,
            "it was lifted since"
        );
    }
}
