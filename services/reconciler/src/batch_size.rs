//! The number of rows that one transaction of the background changes: as many as fit into its time.
//! For so long it locks them, and on SQLite the file, and an order that comes meanwhile waits.

use std::{ops::RangeInclusive, time::Duration};

/// Rows of the next transaction, within bounds.
pub(crate) struct BatchSize {
    rows: usize,
    bounds: RangeInclusive<usize>,
    time: Duration,
}

impl BatchSize {
    /// Begins with the largest number. `time`: what a transaction may take.
    pub(crate) fn within(bounds: RangeInclusive<usize>, time: Duration) -> Self {
        Self {
            rows: *bounds.end(),
            bounds,
            time,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Halves or doubles the number by how long the last transaction took, which had so many rows. A
    /// brief one that had fewer than it might have proves nothing.
    pub(crate) fn adapt(&mut self, rows: usize, took: Duration) {
        let next = match took {
            took if took > self.time => self.rows / 2,
            took if took < self.time / 2 && rows >= self.rows => self.rows * 2,
            _ => self.rows,
        };
        self.rows = next.clamp(*self.bounds.start(), *self.bounds.end());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::BatchSize;

    #[test]
    fn a_transaction_that_takes_long_is_followed_by_a_smaller_one_and_a_brief_one_by_a_larger() {
        let time = Duration::from_millis(10);
        let mut size = BatchSize::within(50..=400, time);
        let mut after = |took| {
            size.adapt(size.rows(), took);
            size.rows()
        };
        let (long, brief) = (time * 2, time / 4);
        assert_eq!(after(brief), 400);
        assert_eq!(after(long), 200);
        assert_eq!(after(time), 200);
        assert_eq!(after(long), 100);
        assert_eq!([after(long), after(long)], [50, 50]);
        assert_eq!(after(brief), 100);
        for rows in [0, 99] {
            size.adapt(rows, brief);
            assert_eq!(size.rows(), 100, "{rows} rows prove nothing");
        }
    }
}
