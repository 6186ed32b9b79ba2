//! Units that orders took in each second of the last minute, from the counts that a page reads.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use domain::ItemId;
use moka::sync::Cache;

/// Columns of a sparkline.
pub(super) const SECONDS: usize = 60;
/// Items whose counts are kept, and how long after a page has read them last.
const ITEMS_MAX: u64 = 1000;
const IDLE: Duration = Duration::from_secs(120);
/// Two pages may read the same item: counts that follow closer than this say nothing of a second.
const APART_MIN: Duration = Duration::from_millis(400);

type Samples = Arc<Mutex<VecDeque<(Instant, u64)>>>;

/// Counts of promised units (held and paid) by item.
pub(super) struct Rates(Cache<ItemId, Samples>);

impl Default for Rates {
    fn default() -> Self {
        let cache = Cache::builder().max_capacity(ITEMS_MAX).time_to_idle(IDLE);
        Self(cache.build())
    }
}

impl Rates {
    /// Notes the count, and returns the rates: units for each second, the latest last. Units that
    /// returned are not counted as negative orders.
    pub(super) fn note(&self, item: &ItemId, promised: u64) -> Vec<f64> {
        let samples = self.0.get_with(item.clone(), Samples::default);
        let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut samples, Instant::now(), promised);
        rates(&samples)
    }
}

fn add(samples: &mut VecDeque<(Instant, u64)>, now: Instant, promised: u64) {
    if samples
        .back()
        .is_some_and(|(at, _)| now.duration_since(*at) < APART_MIN)
    {
        return;
    }
    samples.push_back((now, promised));
    if samples.len() > SECONDS + 1 {
        samples.pop_front();
    }
}

fn rates(samples: &VecDeque<(Instant, u64)>) -> Vec<f64> {
    let pairs = samples.iter().zip(samples.iter().skip(1));
    pairs
        .map(|((before, from), (after, to))| {
            let seconds = after.duration_since(*before).as_secs_f64();
            to.saturating_sub(*from) as f64 / seconds
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        time::{Duration, Instant},
    };

    use super::{SECONDS, add, rates};

    #[test]
    fn a_rate_is_the_growth_in_a_second_and_never_negative() {
        let (mut samples, start) = (VecDeque::new(), Instant::now());
        for (ms, promised) in [(0, 10), (100, 12), (1000, 30), (3000, 50), (4000, 20)] {
            add(&mut samples, start + Duration::from_millis(ms), promised);
        }
        assert_eq!(rates(&samples), [20.0, 10.0, 0.0]);
        for second in 5..100 {
            add(&mut samples, start + Duration::from_secs(second), 20);
        }
        assert_eq!(rates(&samples).len(), SECONDS);
    }
}
