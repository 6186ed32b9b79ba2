//! The units that one buyer may have.

use std::collections::BTreeMap;

use client::OrderState;

/// Buyers with more than `limit` units, and how many they have. Each order is its buyer, its state
/// and its units, which count while it is held or paid.
pub fn above_limit<B: Ord>(
    limit: u32,
    orders: impl IntoIterator<Item = (B, OrderState, u64)>,
) -> BTreeMap<B, u64> {
    let mut units_of = BTreeMap::<B, u64>::new();
    for (buyer, state, units) in orders {
        if state.has_units() {
            *units_of.entry(buyer).or_default() += units;
        }
    }
    units_of.retain(|_, units| *units > u64::from(limit));
    units_of
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use client::OrderState::{Cancelled, Confirmed, Expired, Held};

    use super::above_limit;

    #[test]
    fn held_and_paid_units_count_together() {
        let orders = [
            ("ann", Held, 1),
            ("ann", Confirmed, 2),
            ("ann", Expired, 9),
            ("bob", Confirmed, 2),
            ("bob", Cancelled, 1),
        ];
        assert_eq!(above_limit(2, orders), BTreeMap::from([("ann", 3)]));
        assert_eq!(above_limit(3, orders), BTreeMap::new());
    }
}
