//! The number of rows that one transaction changes: as many as fit into [`BATCH_TIME`].

use std::{ops::RangeInclusive, time::Duration};

/// For so long a transaction of the background may lock its rows, and on SQLite the file. An order
/// that comes meanwhile waits.
const BATCH_TIME: Duration = Duration::from_millis(10);

/// Rows of the next transaction, within bounds.
pub(crate) struct BatchSize {
    rows: usize,
    bounds: RangeInclusive<usize>,
}

impl BatchSize {
    /// Begins with the largest number.
    pub(crate) fn within(bounds: RangeInclusive<usize>) -> Self {
        Self {
            rows: *bounds.end(),
            bounds,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Halves or doubles the number by how long the last transaction took, which had so many rows. A
    /// brief one that had fewer than it might have proves nothing.
    pub(crate) fn adapt(&mut self, rows: usize, took: Duration) {
        let next = match took {
            took if took > BATCH_TIME => self.rows / 2,
            took if took < BATCH_TIME / 2 && rows >= self.rows => self.rows * 2,
            _ => self.rows,
        };
        self.rows = next.clamp(*self.bounds.start(), *self.bounds.end());
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH_TIME, BatchSize};

    #[test]
    fn a_transaction_that_takes_long_is_followed_by_a_smaller_one_and_a_brief_one_by_a_larger() {
        let mut size = BatchSize::within(50..=400);
        let mut after = |took| {
            size.adapt(size.rows(), took);
            size.rows()
        };
        let (long, brief) = (BATCH_TIME * 2, BATCH_TIME / 4);
        assert_eq!(after(brief), 400);
        assert_eq!(after(long), 200);
        assert_eq!(after(BATCH_TIME), 200);
        assert_eq!(after(long), 100);
        assert_eq!([after(long), after(long)], [50, 50]);
        assert_eq!(after(brief), 100);
        for rows in [0, 99] {
            size.adapt(rows, brief);
            assert_eq!(size.rows(), 100, "{rows} rows prove nothing");
        }
    }
}
