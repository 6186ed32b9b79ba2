//! How many units were free, at least, while a buyer was refused as sold out.
//!
//! That is not known from outside. But the stock minus all units that orders may have had at an
//! instant is a lower bound. A refusal is wrong if the bound was at least what it wanted at each
//! instant from its request to its response.

use std::time::Duration;

/// Lifetime of the sold-out cache. A refusal may be older than its request by so much.
pub const CACHE_TTL: Duration = Duration::from_millis(100);

/// Units that orders may have had, over time, and their maxima over ranges of 2^level changes.
#[derive(Debug)]
pub struct Claimed<T> {
    times: Vec<T>,
    maxima: Vec<Vec<i64>>,
}

impl<T: Copy + Ord> Claimed<T> {
    /// Adds up changes: the units that orders may have from an instant on, or less than zero if
    /// they are back.
    pub fn new(changes: impl IntoIterator<Item = (T, i64)>) -> Self {
        let mut changes: Vec<_> = changes.into_iter().collect();
        // At one instant, claims count before returns.
        changes.sort_unstable_by_key(|(at, units)| (*at, -units));
        let mut sum = 0;
        let mut claimed = vec![0];
        claimed.extend(changes.iter().map(|(_, units)| {
            sum += units;
            sum
        }));
        let times = changes.into_iter().map(|(at, _)| at).collect();
        let mut maxima = vec![claimed];
        for level in 0.. {
            let (half, last): (usize, &Vec<i64>) = (1 << level, &maxima[level]);
            if last.len() <= half {
                break;
            }
            let pairs = last.iter().zip(&last[half..]);
            let next = pairs.map(|(left, right)| *left.max(right)).collect();
            maxima.push(next);
        }
        Self { times, maxima }
    }

    /// How many of `stock` units were free at every instant of this time, at least. Less than zero
    /// if orders may have had more.
    pub fn free(&self, stock: u64, since: T, until: T) -> i64 {
        let stock = i64::try_from(stock).unwrap_or(i64::MAX);
        stock.saturating_sub(self.most(since, until))
    }

    /// The most units that orders may have had at one instant of this time.
    fn most(&self, since: T, until: T) -> i64 {
        // What is claimed at `since` is the sum of all changes before it.
        let first = self.times.partition_point(|at| *at < since);
        let last = self.times.partition_point(|at| *at <= until);
        let level = (last - first + 1).ilog2() as usize;
        let row = &self.maxima[level];
        row[first].max(row[last + 1 - (1 << level)])
    }
}

#[cfg(test)]
mod tests {
    use super::Claimed;

    #[test]
    fn units_are_free_that_no_order_may_have() {
        // Two units, taken at 10 and 20; one comes back at 30.
        let claimed = Claimed::new([(30, -1), (10, 1), (20, 1)]);
        let free = |since, until| claimed.free(2, since, until);
        assert_eq!(free(0, 9), 2);
        assert_eq!(free(0, 10), 1);
        assert_eq!(free(12, 19), 1);
        assert_eq!(free(12, 20), 0, "the last one was taken");
        assert_eq!(free(22, 29), 0);
        assert_eq!(free(30, 90), 0, "it came back at that instant");
        assert_eq!(free(31, 90), 1);
        assert_eq!(claimed.free(1, 22, 29), -1);
    }

    #[test]
    fn a_long_time_is_judged_like_its_parts() {
        let changes = (0..50).map(|at| (at, [3, -2, 4, -4][at % 4]));
        let claimed = Claimed::new(changes);
        for since in 0..50 {
            for until in since..50 {
                let parts = (since..=until).map(|at| claimed.free(99, at, at));
                assert_eq!(Some(claimed.free(99, since, until)), parts.min());
            }
        }
    }

    #[test]
    fn without_orders_all_units_are_free() {
        let claimed = Claimed::new(Vec::<(u64, i64)>::new());
        assert_eq!(claimed.free(5, 0, 9), 5);
    }
}
