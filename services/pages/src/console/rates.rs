//! What was counted in each second of the last minute, from the counts that a page reads.

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

/// Counts by item.
pub(super) struct Rates {
    items: Cache<ItemId, Samples>,
    /// Samples between the two counts that a rate compares.
    span: usize,
}

impl Rates {
    /// Rates that compare each count with the one `span` samples before. Counts that processes
    /// report once a second need two: a page may read both reports of a second or none.
    pub(super) fn over(span: usize) -> Self {
        let items = Cache::builder().max_capacity(ITEMS_MAX).time_to_idle(IDLE);
        Self {
            items: items.build(),
            span,
        }
    }

    /// Notes the count, and returns the rates: the growth in each second, the latest last. A count
    /// that falls, as promised units do when some return, has the rate 0.
    pub(super) fn note(&self, item: &ItemId, count: u64) -> Vec<f64> {
        let samples = self.items.get_with(item.clone(), Samples::default);
        let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut samples, Instant::now(), count);
        rates(&samples, self.span)
    }
}

fn add(samples: &mut VecDeque<(Instant, u64)>, now: Instant, count: u64) {
    if samples
        .back()
        .is_some_and(|(at, _)| now.duration_since(*at) < APART_MIN)
    {
        return;
    }
    samples.push_back((now, count));
    if samples.len() > SECONDS + 1 {
        samples.pop_front();
    }
}

fn rates(samples: &VecDeque<(Instant, u64)>, span: usize) -> Vec<f64> {
    let pairs = samples.iter().zip(samples.iter().skip(span));
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
        for (ms, count) in [(0, 10), (100, 12), (1000, 30), (3000, 50), (4000, 20)] {
            add(&mut samples, start + Duration::from_millis(ms), count);
        }
        assert_eq!(rates(&samples, 1), [20.0, 10.0, 0.0]);
        assert_eq!(rates(&samples, 2), [40.0 / 3.0, 0.0], "over two");
        for second in 5..100 {
            add(&mut samples, start + Duration::from_secs(second), 20);
        }
        assert_eq!(rates(&samples, 1).len(), SECONDS);
    }
}
