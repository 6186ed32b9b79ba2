//! The search for the highest sustained rate: upwards until a rate fails, then by bisection.

use anyhow::Result;

/// The range of the search.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// The first rate.
    pub first: u64,
    /// The highest rate to try.
    pub max: u64,
    /// The search ends when the lowest failed rate is at most this percentage above the highest
    /// sustained one.
    pub close_percent: u64,
}

/// The highest sustained rate; `None` if not even one request per second is. Assumes that all rates
/// above a failed one fail, too.
pub async fn highest(
    rates: Rates,
    mut sustains: impl AsyncFnMut(u64) -> Result<bool>,
) -> Result<Option<u64>> {
    let (mut good, mut bad) = (None, None);
    while let Some(rate) = next(rates, good, bad) {
        match sustains(rate).await? {
            true => good = Some(rate),
            false => bad = Some(rate),
        }
    }
    Ok(good)
}

/// The next rate to try, given the highest sustained and the lowest failed rate.
fn next(rates: Rates, good: Option<u64>, bad: Option<u64>) -> Option<u64> {
    match (good, bad) {
        (None, None) => Some(rates.first.min(rates.max)),
        // Steps of a half are few, and the first failed rate is not so high that the service needs
        // long to recover.
        (Some(good), None) => (good < rates.max).then(|| (good + good.div_ceil(2)).min(rates.max)),
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
        max: 100_000,
        close_percent: 5,
    };

    /// Searches a service with this capacity. Also returns the rates that were tried.
    async fn search(rates: Rates, capacity: u64) -> (Option<u64>, Vec<u64>) {
        let mut tried = Vec::new();
        let found = highest(rates, async |rate| {
            tried.push(rate);
            // A queue: slow near the capacity, and unbounded beyond it.
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
    async fn no_rate_is_tried_twice_or_above_the_maximum() {
        let (found, mut tried) = search(
            Rates {
                max: 2_000,
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
    async fn a_service_that_is_always_too_slow_has_no_sustained_rate() {
        let (found, tried) = search(RATES, 1).await;
        assert_eq!((found, tried.last()), (None, Some(&1)));
    }

    #[tokio::test]
    async fn an_error_ends_the_search() {
        assert!(
            highest(RATES, async |_| anyhow::bail!("the service is down"))
                .await
                .is_err()
        );
    }
}
