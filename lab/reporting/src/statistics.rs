//! Statistics of what was measured repeatedly.

/// The middle value, or the mean of the two middle ones. NaN without values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// Highest less lowest value, as a share of the median.
pub fn spread(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    // If all values are 0, so is the median: no division.
    if most == least {
        0.0
    } else {
        (most - least) / median(values)
    }
}

/// Percentile of sorted values: one of them. NaN without values.
pub fn percentile(sorted: &[f64], percent: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank of a list in memory"
    )]
    // 99.9 % of 1000 is a little more than 999 where numbers are binary.
    let rank = (percent / 100.0 * sorted.len() as f64 - 1e-6).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::{median, percentile, spread};

    #[test]
    fn the_median_is_the_middle_of_any_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[7.0]), 7.0);
        assert_eq!(
            median(&[100.0, 1.0, 2.0, 4.0]),
            3.0,
            "one that is slow does not count for more"
        );
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_spread_is_a_share_of_the_median() {
        assert!((spread(&[0.45, 0.55, 0.5]) - 0.2).abs() < 1e-9);
        assert_eq!(spread(&[0.0, 0.0]), 0.0);
    }

    #[test]
    fn percentiles_are_measured_values() {
        let values: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(
            [50.0, 99.0, 99.9, 100.0].map(|percent| percentile(&values, percent)),
            [500.0, 990.0, 999.0, 1000.0]
        );
        assert!(percentile(&[], 50.0).is_nan());
    }
}
