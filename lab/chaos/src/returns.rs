//! When the units of orders that have ended were free again, as the ledger showed it first.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use uuid::Uuid;

/// The orders whose units are back at their segments. The monitor writes it, and the judge reads
/// it.
///
/// An order's end adds a row to `returns`. The row goes when the ledger records the segment's own
/// entry for the units. So an order that has ended, of a buyer without such a row, has no units on
/// their way: they are free, or another order has them.
#[derive(Clone, Debug, Default)]
pub struct ReturnLog(Arc<Mutex<HashMap<Uuid, Instant>>>);

impl ReturnLog {
    /// Notes what a reading of the ledger has shown that ended just now. The first time counts.
    pub fn note(&self, orders: HashSet<Uuid>) {
        let now = Instant::now();
        let mut log = self.log();
        for order in orders {
            log.entry(order).or_insert(now);
        }
    }

    /// Every order whose units are back, and since when.
    pub fn all(&self) -> HashMap<Uuid, Instant> {
        self.log().clone()
    }

    fn log(&self) -> MutexGuard<'_, HashMap<Uuid, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use uuid::Uuid;

    use super::ReturnLog;

    #[test]
    fn the_first_reading_that_shows_a_return_counts() {
        let (log, order) = (ReturnLog::default(), Uuid::from_u128(1));
        log.note(HashSet::from([order]));
        let first = log.all();
        log.note(HashSet::from([order, Uuid::from_u128(2)]));
        assert_eq!(log.all().get(&order), first.get(&order));
        assert_eq!(log.all().len(), 2);
    }
}
