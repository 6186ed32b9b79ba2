//! Which buyers a crowd consists of.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::buyers::Kind;

/// Kinds of buyers with their weights.
pub struct Mix {
    kinds: &'static [(u32, Kind)],
}

impl Mix {
    /// Of every sum of the weights, so many of each kind.
    pub const fn new(kinds: &'static [(u32, Kind)]) -> Self {
        Self { kinds }
    }

    /// The kind that these dice say.
    pub fn pick(&self, dice: u64) -> &'static Kind {
        let total: u32 = self.kinds.iter().map(|(weight, _)| weight).sum();
        let mut roll = u32::try_from(dice % u64::from(total.max(1))).unwrap_or(0);
        for (weight, kind) in self.kinds {
            match roll.checked_sub(*weight) {
                Some(rest) => roll = rest,
                None => return kind,
            }
        }
        // Only an empty mix comes here.
        &crate::buyers::ONE_UNIT
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.kinds.iter().map(|(weight, kind)| format!("{weight} {}", kind.name)).collect();
        f.write_str(&kinds.join(", "))
    }
}

/// The dice of a visit: the same for the same seed, whoever throws them and when.
pub fn dice(seed: u64, visit: u64) -> u64 {
    xxh3_64_with_seed(&visit.to_le_bytes(), seed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::dice;
    use crate::rush::MIX;

    fn deal(seed: u64, visits: u64) -> Vec<&'static str> {
        (0..visits).map(|visit| MIX.pick(dice(seed, visit)).name).collect()
    }

    #[test]
    fn a_seed_deals_the_same_crowd_again_and_another_seed_another() {
        assert_eq!(deal(1, 1_000), deal(1, 1_000));
        assert_ne!(deal(1, 1_000), deal(2, 1_000));
    }

    #[test]
    fn every_kind_comes_as_often_as_its_weight_says() {
        let mut counts = BTreeMap::<_, i64>::new();
        for name in deal(7, 100_000) {
            *counts.entry(name).or_default() += 1;
        }
        for (name, expected) in [("one unit", 65_000), ("repeats", 15_000), ("two units", 10_000), ("over the limit", 10_000)] {
            assert!((counts[name] - expected).abs() < 1_000, "{name}: {counts:?}");
        }
    }
}
