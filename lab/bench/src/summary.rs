//! The summary of a line's samples.

use reporting::statistics::{median, spread};
use serde::Serialize;

use crate::goal::{Bound, Line, Sample};

/// Medians of a line. Counts are sums over the repeats.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The median of the repeats' ratios. Figure and baseline of a repeat are measured in turn.
    pub ratio: f64,
    /// The median of the figures.
    pub figure: f64,
    /// The median of the baselines.
    pub baseline: f64,
    /// Orders that were accepted.
    pub accepted: u64,
    /// Requests that were refused.
    pub rejected: u64,
    /// Absolute number of units that counters and logs do not explain, so that opposite errors of
    /// two repeats do not cancel out.
    pub drift: u64,
    /// Units sold beyond the stock.
    pub oversold: u64,
    /// Unit of figure and baseline.
    pub unit: &'static str,
    /// Description of the figure.
    pub measured: String,
    /// Description of the baseline.
    pub against: String,
    /// Bound of the ratio, such as `>= 0.6`.
    pub goal: String,
    /// Whether the ratio is within the bound.
    pub met: bool,
    /// Range of the repeats' ratios, as a share of their median.
    pub spread: f64,
    /// How it was measured.
    pub setting: String,
    /// One sample per repeat.
    pub samples: Vec<Sample>,
}

impl Summary {
    /// Summarizes a line that was measured at least once.
    pub fn of(line: Line) -> Self {
        let Line {
            figure: measured,
            baseline: against,
            unit,
            bound,
            setting,
            samples,
        } = line;
        let of = |value: fn(&Sample) -> f64| samples.iter().map(value).collect::<Vec<_>>();
        let ratios = of(Sample::ratio);
        let ratio = median(&ratios);
        Self {
            ratio,
            figure: median(&of(|sample| sample.figure)),
            baseline: median(&of(|sample| sample.baseline)),
            accepted: samples.iter().map(|sample| sample.accepted).sum(),
            rejected: samples.iter().map(|sample| sample.rejected).sum(),
            drift: samples
                .iter()
                .map(|sample| sample.drift.unsigned_abs())
                .sum(),
            oversold: samples.iter().map(|sample| sample.oversold).sum(),
            unit,
            measured,
            against,
            goal: bound.to_string(),
            met: bound.holds(ratio) && (ratio.is_finite() || matches!(bound, Bound::None)),
            spread: spread(&ratios),
            setting,
            samples,
        }
    }

    /// Whether the ratio is within the bound and every unit is accounted for.
    pub fn is_good(&self) -> bool {
        self.met && self.drift == 0 && self.oversold == 0
    }
}

#[cfg(test)]
pub mod samples {
    use crate::goal::{Bound, Line, Sample};

    /// A line with one sample for each pair of figure and baseline.
    pub fn line(bound: Bound, pairs: &[(f64, f64)]) -> Line {
        let sample = |&(figure, baseline): &(f64, f64)| Sample {
            figure,
            baseline,
            accepted: 10,
            rejected: 1,
            ..Sample::default()
        };
        Line {
            figure: "recorded orders".into(),
            baseline: "bare handler".into(),
            unit: "orders/s",
            bound,
            setting: "wrk, 512 connections".into(),
            samples: pairs.iter().map(sample).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Summary, samples::line};
    use crate::goal::Bound;

    #[test]
    fn the_ratio_is_the_median_of_the_repeats_and_not_the_ratio_of_medians() {
        let summary = Summary::of(line(
            Bound::AtLeast(0.6),
            &[(50.0, 100.0), (70.0, 100.0), (80.0, 200.0)],
        ));
        assert_eq!(
            (summary.ratio, summary.figure, summary.baseline),
            (0.5, 70.0, 100.0)
        );
        assert!(!summary.met);
    }

    #[test]
    fn the_spread_is_a_share_of_the_median() {
        let summary = Summary::of(line(
            Bound::None,
            &[(45.0, 100.0), (50.0, 100.0), (55.0, 100.0)],
        ));
        assert!((summary.spread - 0.2).abs() < 1e-9, "{}", summary.spread);
        assert_eq!(
            Summary::of(line(Bound::None, &[(0.0, 1.0), (0.0, 1.0)])).spread,
            0.0
        );
    }

    #[test]
    fn counts_are_summed_and_drift_does_not_cancel() {
        let mut line = line(Bound::AtLeast(0.5), &[(1.0, 1.0), (1.0, 1.0)]);
        assert!(Summary::of(line.clone()).is_good());
        (line.samples[0].drift, line.samples[1].drift) = (1, -1);
        let summary = Summary::of(line);
        assert_eq!(
            (summary.accepted, summary.rejected, summary.drift),
            (20, 2, 2)
        );
        assert!(summary.met && !summary.is_good());
    }

    #[test]
    fn an_oversold_unit_is_never_good() {
        let mut line = line(Bound::None, &[(1.0, 1.0)]);
        line.samples[0].oversold = 1;
        assert!(!Summary::of(line).is_good());
    }

    #[test]
    fn a_bound_is_kept_on_its_own_side_and_by_no_broken_ratio() {
        let met = |bound, pairs: &[(f64, f64)]| Summary::of(line(bound, pairs)).met;
        assert!(
            met(Bound::AtLeast(0.6), &[(6.0, 10.0)]) && !met(Bound::AtLeast(0.6), &[(5.9, 10.0)])
        );
        assert!(
            met(Bound::AtMost(1.0), &[(5.0, 10.0)]) && !met(Bound::AtMost(1.0), &[(10.1, 10.0)])
        );
        assert!(
            !met(Bound::AtLeast(0.6), &[(1.0, 0.0)]) && !met(Bound::AtMost(1.0), &[(0.0, 0.0)]),
            "nothing was measured"
        );
        assert!(!met(Bound::AtLeast(0.6), &[]) && met(Bound::None, &[(1.0, 0.0)]));
    }
}
