//! Places numbers on an axis, as shares of its length.
//!
//! An axis is logarithmic if its numbers span a decade. Zero, which has no logarithm, then has a
//! place of its own at the start.

use std::iter::successors;

/// From this ratio of most to least, an axis is logarithmic.
const DECADE: f64 = 10.0;
/// Share of a logarithmic axis between zero and the least other number.
const ZERO_SHARE: f64 = 0.18;
const INTERVALS_MAX: u8 = 5;
const MARKS_MAX: usize = 8;
/// Sums of fractions are a little above or below what they should be.
const ALMOST: f64 = 1e-6;

/// An axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Axis {
    /// From zero.
    Linear {
        /// Its end.
        last: f64,
    },
    /// Each decade is as long as the others.
    Logarithmic {
        /// Its start, after zero.
        first: f64,
        /// Its end.
        last: f64,
        /// Whether zero is on it.
        has_zero: bool,
    },
}

impl Axis {
    /// An axis that ends at the least and the most of these numbers, none of which is negative.
    pub fn of(numbers: &[f64]) -> Self {
        let most = most(numbers);
        let positive = numbers.iter().copied().filter(|number| *number > 0.0);
        let least = positive.fold(most, f64::min);
        if most <= 0.0 || most < least * DECADE {
            return Self::linear(numbers);
        }
        Self::Logarithmic {
            first: least,
            last: most,
            has_zero: numbers.iter().any(|number| *number <= 0.0),
        }
    }

    /// The same, linear whatever the numbers span.
    pub fn linear(numbers: &[f64]) -> Self {
        let most = most(numbers);
        let last = if most > 0.0 { most } else { 1.0 };
        Self::Linear { last }
    }

    /// The same with round ends.
    pub fn rounded(self) -> Self {
        match self {
            Self::Linear { last } => {
                let interval = interval(last);
                Self::Linear {
                    last: (last / interval - ALMOST).ceil() * interval,
                }
            }
            Self::Logarithmic {
                first,
                last,
                has_zero,
            } => Self::Logarithmic {
                first: round_below(first),
                last: round_above(last),
                has_zero,
            },
        }
    }

    /// Round numbers of an axis with round ends.
    pub fn marks(self) -> Vec<f64> {
        match self {
            Self::Linear { last } => (0..=INTERVALS_MAX)
                .map(|mark| f64::from(mark) * interval(last))
                .take_while(|mark| *mark <= last * (1.0 + ALMOST))
                .collect(),
            Self::Logarithmic {
                first,
                last,
                has_zero,
            } => {
                let zero = has_zero.then_some(0.0);
                zero.into_iter().chain(marks(first, last)).collect()
            }
        }
    }

    /// Where a number is: 0 is the start and 1 the end.
    pub fn share(self, number: f64) -> f64 {
        match self {
            _ if number <= 0.0 => 0.0,
            Self::Linear { last } => number / last,
            Self::Logarithmic {
                first,
                last,
                has_zero,
            } => {
                let start = if has_zero { ZERO_SHARE } else { 0.0 };
                start + (1.0 - start) * (number / first).log10() / (last / first).log10()
            }
        }
    }

    /// Whether zero is apart from the other numbers.
    pub fn sets_zero_apart(self) -> bool {
        matches!(self, Self::Logarithmic { has_zero: true, .. })
    }
}

fn most(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(0.0, f64::max)
}

/// A round part of a linear axis.
fn interval(last: f64) -> f64 {
    round_above(last / f64::from(INTERVALS_MAX))
}

/// 1, 2 and 5 of each decade, or only 1 if those are too many.
fn marks(first: f64, last: f64) -> Vec<f64> {
    let marks: Vec<_> = successors(Some(first), |mark| Some(round_above(mark * 1.5)))
        .take_while(|mark| *mark <= last * (1.0 + ALMOST))
        .collect();
    if marks.len() <= MARKS_MAX {
        return marks;
    }
    marks.into_iter().filter(|mark| is_power(*mark)).collect()
}

fn is_power(mark: f64) -> bool {
    let power = mark.log10();
    (power - power.round()).abs() < ALMOST
}

/// The power of ten that is not above a number.
fn decade(number: f64) -> f64 {
    10_f64.powf(number.log10().floor())
}

/// The most of 1, 2 and 5 times a power of ten that is not above a number.
fn round_below(number: f64) -> f64 {
    let decade = decade(number);
    let round = [5.0, 2.0].map(|digit| digit * decade);
    let found = round.into_iter().find(|round| *round <= number);
    found.unwrap_or(decade)
}

/// The least of 1, 2 and 5 times a power of ten that is not below a number.
pub fn round_above(number: f64) -> f64 {
    let decade = decade(number);
    let round = [1.0, 2.0, 5.0].map(|digit| digit * decade);
    let found = round.into_iter().find(|round| *round >= number);
    found.unwrap_or(10.0 * decade)
}

#[cfg(test)]
mod tests {
    use super::{Axis, round_above};

    fn assert_near(found: &[f64], expected: &[f64]) {
        let is_near = |(found, expected): (&f64, &f64)| (found - expected).abs() < 1e-9;
        assert!(
            found.len() == expected.len() && found.iter().zip(expected).all(is_near),
            "{found:?}, not {expected:?}"
        );
    }

    #[test]
    fn numbers_within_a_decade_have_a_linear_axis_from_zero() {
        let axis = Axis::of(&[2.9, 7.8]);
        assert_eq!(axis, Axis::Linear { last: 7.8 });
        assert_near(&axis.rounded().marks(), &[0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_near(&[axis.rounded().share(6.0)], &[0.75]);
        let idle = Axis::of(&[0.0, 0.2, 0.9]).rounded();
        assert_near(&idle.marks(), &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
    }

    #[test]
    fn numbers_that_span_a_decade_have_a_logarithmic_axis() {
        let axis = Axis::of(&[3.0, 300.0, 30.0]);
        assert_near(
            &[3.0, 30.0, 300.0].map(|number| axis.share(number)),
            &[0.0, 0.5, 1.0],
        );
        assert!(!axis.sets_zero_apart());
        let rounded = axis.rounded();
        assert_near(
            &rounded.marks(),
            &[2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0],
        );
        assert_near(&[rounded.share(2.0), rounded.share(500.0)], &[0.0, 1.0]);
        let long = Axis::of(&[4.0, 3_000.0]).rounded();
        assert_near(&long.marks(), &[10.0, 100.0, 1_000.0]);
    }

    #[test]
    fn zero_has_a_place_of_its_own_before_the_logarithms() {
        let axis = Axis::of(&[0.0, 100.0, 2_000.0]);
        assert!(axis.sets_zero_apart());
        let shares = [0.0, 100.0, 500.0, 2_000.0].map(|number| axis.share(number));
        assert!(shares.is_sorted() && shares[1] > 0.1, "{shares:?}");
        assert_near(&[shares[0], shares[3]], &[0.0, 1.0]);
        assert_near(&axis.rounded().marks()[..1], &[0.0]);
    }

    #[test]
    fn an_axis_may_be_linear_whatever_its_numbers_span() {
        let axis = Axis::linear(&[500.0, 8_000.0, 2_000.0]);
        assert_eq!(axis, Axis::Linear { last: 8_000.0 });
        assert_near(&[axis.share(2_000.0)], &[0.25]);
    }

    #[test]
    fn steps_are_round() {
        let steps = [0.03, 0.9, 1.0, 1.1, 4.8, 6.0, 12.0].map(round_above);
        assert_near(&steps, &[0.05, 1.0, 1.0, 2.0, 5.0, 10.0, 20.0]);
    }

    #[test]
    fn an_axis_with_one_number_or_none_is_valid() {
        let samples: [&[f64]; 3] = [&[], &[0.0], &[5.0]];
        for numbers in samples {
            let axis = Axis::of(numbers);
            assert!(axis.share(0.0).is_finite() && axis.rounded().share(5.0).is_finite());
            assert!(axis.rounded().marks().len() > 1, "{axis:?}");
        }
    }
}
