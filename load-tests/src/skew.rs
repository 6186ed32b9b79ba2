//! Chooses buyers and items: each in turn, or a few of them most often.

use anyhow::{Result, ensure};
use rand::{SeedableRng, rngs::SmallRng};
use rand_distr::{Distribution, Zipf};

/// Steeper than any measured distribution.
const EXPONENT_MAX: f64 = 5.0;

/// How one of several indices is chosen.
#[derive(Debug, Clone, Copy)]
pub enum Skew {
    /// Each in turn.
    Even {
        /// Number of indices.
        of: u64,
    },
    /// The index k - 1 with a weight of 1 / k^exponent.
    Zipf(Zipf<f64>),
}

impl Skew {
    /// Chooses one of `of` indices; exponent 0 is even. Errors name `option`.
    pub fn new(option: &str, of: u64, exponent: f64) -> Result<Self> {
        ensure!(
            (0.0..=EXPONENT_MAX).contains(&exponent),
            "{option}: expected a number from 0 (even) to {EXPONENT_MAX}, found {exponent}"
        );
        ensure!(of > 0, "{option}: expected at least one to choose from");
        if exponent == 0.0 {
            return Ok(Self::Even { of });
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "there are far fewer than 2^53 buyers"
        )]
        Ok(Self::Zipf(Zipf::new(of as f64, exponent)?))
    }

    /// The index for the session with this number and these random bits.
    pub fn choose(&self, session: u64, random: u64) -> u64 {
        match self {
            Self::Even { of } => session % of,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rank is a whole number from 1 to the number of indices"
            )]
            Self::Zipf(zipf) => zipf.sample(&mut SmallRng::seed_from_u64(random)) as u64 - 1,
        }
    }

    /// Whether this number of sessions chooses each index at most once.
    pub fn chooses_once(&self, sessions: u64) -> bool {
        matches!(self, Self::Even { of } if sessions <= *of)
    }
}

#[cfg(test)]
mod tests {
    use super::Skew;
    use crate::mix::random;

    #[test]
    fn without_skew_each_index_is_chosen_in_turn() {
        let even = Skew::new("--skew", 3, 0.0).unwrap();
        assert_eq!(
            (0..5)
                .map(|session| even.choose(session, random(1, session)))
                .collect::<Vec<_>>(),
            [0, 1, 2, 0, 1]
        );
        assert!(even.chooses_once(3) && !even.chooses_once(4));
    }

    #[test]
    fn ranks_follow_the_law_of_zipf() {
        const VISITS: u64 = 200_000;
        let skew = Skew::new("--skew", 1_000, 1.0).unwrap();
        let mut counts = vec![0_u64; 1_000];
        for session in 0..VISITS {
            counts[usize::try_from(skew.choose(session, random(7, session))).unwrap()] += 1;
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
        assert!(
            !skew.chooses_once(1),
            "the most frequent index may be chosen at any time"
        );
    }

    #[test]
    fn the_same_random_bits_choose_the_same_index() {
        let skew = Skew::new("--skew", 50, 1.2).unwrap();
        assert_eq!(skew.choose(1, 99), skew.choose(2, 99));
        assert!((0..1_000).all(|session| skew.choose(session, random(3, session)) < 50));
    }

    #[test]
    fn an_invalid_exponent_is_refused_by_the_name_of_its_option() {
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
