//! The search for the highest rate that holds: up until one does not, and then in between.

use anyhow::Result;

/// Where to look.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// The first rate.
    pub first: u64,
    /// The highest rate that is tried.
    pub most: u64,
    /// How far, in percent, the lowest rate that does not hold may be above the highest that does.
    pub close_percent: u64,
}

/// The highest rate that holds; `None` if not even one a second does. Supposes that whatever is above a rate that does not hold does not either.
pub async fn highest(
    rates: Rates,
    mut holds: impl AsyncFnMut(u64) -> Result<bool>,
) -> Result<Option<u64>> {
    let (mut good, mut bad) = (None, None);
    while let Some(rate) = next(rates, good, bad) {
        match holds(rate).await? {
            true => good = Some(rate),
            false => bad = Some(rate),
        }
    }
    Ok(good)
}

/// The next rate to try, by the highest that holds and the lowest that does not.
fn next(rates: Rates, good: Option<u64>, bad: Option<u64>) -> Option<u64> {
    match (good, bad) {
        (None, None) => Some(rates.first.min(rates.most)),
        // Half as much again: few steps, and the first that is too much is not far too much, which the service would have to recover from.
        (Some(good), None) => {
            (good < rates.most).then(|| (good + good.div_ceil(2)).min(rates.most))
        }
        (None, Some(bad)) => (bad > 1).then_some(bad / 2),
        (Some(good), Some(bad)) => {
            let far = (bad - good) * 100 > good * rates.close_percent;
            (far && bad - good > 1).then_some(good.midpoint(bad))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Rates, highest};

    const RATES: Rates = Rates {
        first: 500,
        most: 100_000,
        close_percent: 5,
    };

    /// Searches where rates up to `capacity` hold, and lists what was tried.
    async fn search(rates: Rates, capacity: u64) -> (Option<u64>, Vec<u64>) {
        let mut tried = Vec::new();
        let found = highest(rates, async |rate| {
            tried.push(rate);
            // As a queue does: slow near the capacity, and without end beyond it.
            let latency_ms = if rate < capacity {
                5.0 / (1.0 - rate as f64 / capacity as f64)
            } else {
                f64::INFINITY
            };
            Ok(latency_ms <= 50.0)
        })
        .await
        .unwrap();
        (found, tried)
    }

    #[tokio::test]
    async fn the_highest_rate_is_found_from_below_and_from_above() {
        for capacity in [40, 700, 12_345, 90_000] {
            let (found, tried) = search(RATES, capacity).await;
            // The latency reaches the bound at nine tenths of the capacity.
            let (found, highest) = (found.unwrap() as f64, capacity as f64 * 0.9);
            assert!(
                found <= highest && found * 1.06 + 1.0 >= highest,
                "{capacity}: {found} by {tried:?}"
            );
            assert!(tried.len() < 25, "{tried:?}");
        }
    }

    #[tokio::test]
    async fn no_rate_is_tried_twice_or_beyond_the_most() {
        let (found, mut tried) = search(
            Rates {
                most: 2_000,
                ..RATES
            },
            1_000_000,
        )
        .await;
        assert_eq!((found, tried.last()), (Some(2_000), Some(&2_000)));
        tried.dedup();
        assert_eq!(tried, [500, 750, 1_125, 1_688, 2_000]);
    }

    #[tokio::test]
    async fn a_service_that_is_always_too_slow_has_no_rate() {
        let (found, tried) = search(RATES, 1).await;
        assert_eq!((found, tried.last()), (None, Some(&1)));
    }

    #[tokio::test]
    async fn an_error_ends_the_search() {
        assert!(
            highest(RATES, async |_| anyhow::bail!("the service is gone"))
                .await
                .is_err()
        );
    }
}
