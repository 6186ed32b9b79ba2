//! Since when the units of orders that have ended are free again, as the ledger showed it first.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use uuid::Uuid;

/// The orders of an item whose units are back, each with its attempt: how many times its units were
/// taken again before.
pub type Returned = HashMap<Uuid, i16>;

/// The orders whose units are back at their segments. The monitor writes it, and the judge reads
/// it.
///
/// An order's end adds a row to `returns`. The row goes when the ledger records the segment's own
/// entry for the units. So an order that has ended, of a buyer without such a row, has no units on
/// their way: they are free, or another order has them.
///
/// An order that was paid late takes units again, and gives them back once more if it is refunded.
/// So what counts is since when *this attempt* was seen to be back, in every reading.
#[derive(Clone, Debug, Default)]
pub struct ReturnLog(Arc<Mutex<HashMap<String, Log>>>);

/// Attempt and time.
type Log = HashMap<Uuid, (i16, Instant)>;

impl ReturnLog {
    /// Notes what a reading of the ledger has shown that ended just now.
    pub fn note(&self, item: &str, returned: Returned) {
        let now = Instant::now();
        let mut log = self.log();
        let before = log.remove(item).unwrap_or_default();
        let of = |(order, attempt)| {
            let since = before.get(&order).filter(|(seen, _)| *seen == attempt);
            (order, (attempt, since.map_or(now, |(_, since)| *since)))
        };
        log.insert(item.to_owned(), returned.into_iter().map(of).collect());
    }

    /// Every order of the item whose units are back, and since when.
    pub fn of(&self, item: &str) -> HashMap<Uuid, Instant> {
        let log = self.log();
        let orders = log.get(item).into_iter().flatten();
        orders.map(|(order, (_, since))| (*order, *since)).collect()
    }

    fn log(&self) -> MutexGuard<'_, HashMap<String, Log>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, time::Instant};

    use uuid::Uuid;

    use super::ReturnLog;

    const ORDER: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    /// The log of an item after these readings, and the time before the last one.
    fn after<const N: usize>(readings: [&[(Uuid, i16)]; N]) -> (HashMap<Uuid, Instant>, Instant) {
        let log = ReturnLog::default();
        let mut last = Instant::now();
        for reading in readings {
            last = Instant::now();
            log.note("vase", reading.iter().copied().collect());
        }
        log.note("wall", HashMap::from([(OTHER, 0)]));
        (log.of("vase"), last)
    }

    #[test]
    fn the_first_reading_that_shows_a_return_counts() {
        let (log, last) = after([&[(ORDER, 0)], &[(ORDER, 0), (OTHER, 0)]]);
        assert!(log[&ORDER] < last && log[&OTHER] >= last);
    }

    #[test]
    fn an_order_that_took_units_again_is_back_since_it_gave_them_back_again() {
        let (log, last) = after([&[(ORDER, 0)], &[(ORDER, 1)]]);
        assert!(log[&ORDER] >= last, "between two readings");
        let (log, last) = after([&[(ORDER, 0)], &[], &[(ORDER, 0)]]);
        assert!(log[&ORDER] >= last, "a reading showed that it had some");
        assert_eq!(after([&[(ORDER, 0)], &[]]).0.len(), 0, "it has them");
    }
}
