//! Who of many comes: each in turn, or a few of them most of the time.

use anyhow::{Result, ensure};
use rand::{SeedableRng, rngs::SmallRng};
use rand_distr::{Distribution, Zipf};

/// Steeper than anything that was ever measured.
const EXPONENT_MOST: f64 = 5.0;

/// How a number of places is chosen from.
#[derive(Debug, Clone, Copy)]
pub enum Skew {
    /// Each in turn.
    Even {
        /// Places.
        of: u64,
    },
    /// The place of rank k with a weight of 1 / k^exponent.
    Zipf(Zipf<f64>),
}

impl Skew {
    /// Chooses from `of` places; exponent 0 is even. `option` is what an error names.
    pub fn new(option: &str, of: u64, exponent: f64) -> Result<Self> {
        ensure!(
            (0.0..=EXPONENT_MOST).contains(&exponent),
            "{option}: expected a number from 0 (even) to {EXPONENT_MOST}, found {exponent}"
        );
        ensure!(of > 0, "{option}: expected something to choose from");
        if exponent == 0.0 {
            return Ok(Self::Even { of });
        }
        #[expect(clippy::cast_precision_loss, reason = "nobody has 2^53 buyers")]
        Ok(Self::Zipf(Zipf::new(of as f64, exponent)?))
    }

    /// The place, from 0, of the visit with this number and these dice.
    pub fn choose(&self, visit: u64, dice: u64) -> u64 {
        match self {
            Self::Even { of } => visit % of,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rank is a whole number from 1 to the number of places"
            )]
            Self::Zipf(zipf) => zipf.sample(&mut SmallRng::seed_from_u64(dice)) as u64 - 1,
        }
    }

    /// Whether each place is chosen at most once in so many visits.
    pub fn chooses_once(&self, visits: u64) -> bool {
        matches!(self, Self::Even { of } if visits <= *of)
    }
}

#[cfg(test)]
mod tests {
    use super::Skew;
    use crate::mix::dice;

    #[test]
    fn without_skew_each_comes_in_turn() {
        let even = Skew::new("--skew", 3, 0.0).unwrap();
        assert_eq!(
            (0..5)
                .map(|visit| even.choose(visit, dice(1, visit)))
                .collect::<Vec<_>>(),
            [0, 1, 2, 0, 1]
        );
        assert!(even.chooses_once(3) && !even.chooses_once(4));
    }

    #[test]
    fn a_rank_comes_as_often_as_the_law_says() {
        const VISITS: u64 = 200_000;
        let skew = Skew::new("--skew", 1_000, 1.0).unwrap();
        let mut counts = vec![0_u64; 1_000];
        for visit in 0..VISITS {
            counts[usize::try_from(skew.choose(visit, dice(7, visit))).unwrap()] += 1;
        }
        let harmonic: f64 = (1..=1_000).map(|rank| 1.0 / f64::from(rank)).sum();
        for rank in [1_u32, 2, 10, 100] {
            let expected = VISITS as f64 / harmonic / f64::from(rank);
            let found = counts[rank as usize - 1] as f64;
            assert!(
                (found / expected - 1.0).abs() < 0.15,
                "rank {rank}: {found} instead of {expected}"
            );
        }
        assert!(!skew.chooses_once(1), "the favourite may come at any time");
    }

    #[test]
    fn the_same_dice_choose_the_same() {
        let skew = Skew::new("--skew", 50, 1.2).unwrap();
        assert_eq!(skew.choose(1, 99), skew.choose(2, 99));
        assert!((0..1_000).all(|visit| skew.choose(visit, dice(3, visit)) < 50));
    }

    #[test]
    fn a_wrong_exponent_is_refused_by_the_name_of_its_option() {
        for exponent in [-1.0, 5.5, f64::NAN] {
            let error = Skew::new("--item-skew", 10, exponent)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("--item-skew: expected a number from 0 (even) to 5"),
                "{error}"
            );
        }
    }
}
