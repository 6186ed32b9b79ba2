//! The limit of units per buyer, as the segments last reported it.
//!
//! The home segment enforces the limit. This copy only decides whether an order is worth moving
//! units for, so it may be out of date for a moment.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use domain::Quantity;

use super::turn::Turn;
use crate::script::Inspection;

/// Interval between two inspections for orders above the limit, however many there are.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct BuyerLimit {
    /// `u64::MAX`: no limit.
    units: AtomicU64,
    refresh_turn: Turn,
}

impl BuyerLimit {
    pub(super) fn new(limit: Option<Quantity>) -> Self {
        Self {
            units: AtomicU64::new(limit.map_or(u64::MAX, |limit| u64::from(limit.get()))),
            refresh_turn: Turn::default(),
        }
    }

    pub(super) fn allows(&self, units: u64) -> bool {
        units <= self.units.load(Ordering::Relaxed)
    }

    /// Whether the caller should refresh it. One caller in [`REFRESH_INTERVAL`] should.
    pub(super) fn is_due_for_refresh(&self) -> bool {
        self.refresh_turn.is_due(REFRESH_INTERVAL)
    }

    /// Takes the limit from the segments. They may differ while an operator changes it.
    pub(super) fn refresh(&self, segments: &[Inspection]) {
        let limits = segments.iter().map(|segment| match segment.limit {
            0 => u64::MAX,
            limit => limit,
        });
        if let Some(most) = limits.max() {
            self.units.store(most, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::Quantity;

    use super::BuyerLimit;

    #[test]
    fn a_limit_allows_as_many_units_and_no_limit_any_number() {
        let limited = BuyerLimit::new(Some(Quantity::new(2).unwrap()));
        assert!(limited.allows(2) && !limited.allows(3));
        assert!(BuyerLimit::new(None).allows(u64::MAX));
    }

    #[test]
    fn one_of_many_callers_refreshes_it() {
        let limit = BuyerLimit::new(None);
        let due = (0..100).filter(|_| limit.is_due_for_refresh());
        assert_eq!(due.count(), 1);
    }
}
