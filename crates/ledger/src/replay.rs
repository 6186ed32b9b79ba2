//! How a segment's row follows from its entries.
//!
//! Pure arithmetic, the same for every database. A reader could get two things wrong. An order that the ledger has already changes nothing, wherever
//! it comes again: not the orders, not the counters. And an order that the row cannot cover does not stop those behind it: it is
//! rejected, and a smaller one may still be held.

use domain::{Change, Entry, OrderId, TakenOrder};

use crate::{LedgerError, SegmentRow};

/// What the entries make of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The row after the last entry. Its version is still the old one.
    pub row: SegmentRow,
    /// Number of orders that hold units now.
    pub held: usize,
    /// Orders that the row could not cover.
    pub rejected: Vec<OrderId>,
    /// Number of orders that the ledger had already.
    pub repeated: usize,
}

/// Applies the entries. `is_new` says, once for each order, whether the ledger did not have it before.
pub fn replay(row: &SegmentRow, entries: &[Entry], mut is_new: impl FnMut(OrderId) -> bool) -> Result<Replayed, LedgerError> {
    let mut replayed = Replayed { row: row.clone(), held: 0, rejected: Vec::new(), repeated: 0 };
    for entry in entries {
        replayed.check_follows(entry)?;
        if let Change::Taken { orders, .. } = &entry.change {
            for order in orders {
                replayed.take(order, is_new(order.id));
            }
        }
        replayed.row.checkpoint = Some(entry.id);
        replayed.row.anchor = Some(entry.fingerprint);
    }
    Ok(replayed)
}

impl Replayed {
    /// A row starts with the entry that opened its segment with the units it was allocated, and from there on ids rise.
    fn check_follows(&self, entry: &Entry) -> Result<(), LedgerError> {
        let follows = match (&entry.change, self.row.checkpoint) {
            (Change::Opened { units, .. }, None) => *units == self.row.allocated,
            (Change::Taken { .. } | Change::StateSet { .. }, Some(checkpoint)) => entry.id > checkpoint,
            (Change::Opened { .. }, Some(_)) | (Change::Taken { .. } | Change::StateSet { .. }, None) => false,
        };
        follows.then_some(()).ok_or_else(|| LedgerError::Diverged(self.row.key.clone()))
    }

    fn take(&mut self, order: &TakenOrder, is_new: bool) {
        let units = u64::from(order.quantity.get());
        if !is_new {
            self.repeated += 1;
        } else if units <= self.row.available {
            self.row.available -= units;
            self.row.held += units;
            self.held += 1;
        } else {
            self.rejected.push(order.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use domain::{BuyerId, Change, Entry, EntryId, OrderId, Quantity, TakenOrder};
    use jiff::Timestamp;

    use super::{Replayed, replay};
    use crate::{LedgerError, SegmentRow};

    fn row(available: u64, checkpoint: Option<u64>) -> SegmentRow {
        SegmentRow {
            key: "vase:0".parse().unwrap(),
            allocated: available,
            available,
            held: 0,
            confirmed: 0,
            checkpoint: checkpoint.map(|ms| EntryId { ms, seq: 0 }),
            anchor: checkpoint.map(|_| 0),
            version: 1,
            fence: 0,
        }
    }

    fn entry(ms: u64, change: Change) -> Entry {
        Entry { id: EntryId { ms, seq: 0 }, fingerprint: 7, change }
    }

    fn opened(ms: u64, units: u64) -> Entry {
        entry(ms, Change::Opened { units, epoch: 1 })
    }

    fn taken(ms: u64, orders: &[(u8, u32)]) -> Entry {
        let orders = orders.iter().map(|&(id, quantity)| TakenOrder {
            id: OrderId::from_bytes([id; 16]),
            buyer: BuyerId::new("ann").unwrap(),
            quantity: Quantity::new(quantity).unwrap(),
        });
        entry(ms, Change::Taken { expires_at: Timestamp::UNIX_EPOCH, orders: orders.collect() })
    }

    fn fresh(row: &SegmentRow, entries: &[Entry]) -> Result<Replayed, LedgerError> {
        let mut seen = HashSet::new();
        replay(row, entries, |id| seen.insert(id))
    }

    #[test]
    fn orders_move_units_from_available_to_held() {
        let replayed = fresh(&row(5, None), &[opened(1, 5), taken(2, &[(1, 1), (2, 3)]), entry(3, Change::StateSet { epoch: 2 })]).unwrap();
        assert_eq!((replayed.row.available, replayed.row.held, replayed.held), (1, 4, 2));
        assert_eq!((replayed.row.checkpoint.unwrap().ms, replayed.row.anchor), (3, Some(7)));
    }

    #[test]
    fn an_order_that_the_row_cannot_cover_is_rejected_and_a_smaller_one_behind_it_is_held() {
        let replayed = fresh(&row(2, Some(1)), &[taken(2, &[(1, 1), (2, 2), (3, 1)])]).unwrap();
        assert_eq!(replayed.rejected, [OrderId::from_bytes([2; 16])]);
        assert_eq!((replayed.row.available, replayed.row.held), (0, 2));
    }

    #[test]
    fn an_order_that_comes_again_changes_nothing() {
        let replayed = fresh(&row(5, Some(1)), &[taken(2, &[(1, 2), (1, 2)]), taken(3, &[(1, 2)])]).unwrap();
        assert_eq!((replayed.row.available, replayed.held, replayed.repeated), (3, 1, 2));
    }

    #[test]
    fn a_history_that_does_not_follow_is_refused() {
        let table = [
            (row(5, None), vec![opened(1, 6)]),
            (row(5, None), vec![taken(1, &[])]),
            (row(5, Some(1)), vec![opened(2, 5)]),
            (row(5, Some(3)), vec![taken(3, &[])]),
            (row(5, Some(3)), vec![taken(5, &[]), taken(4, &[])]),
        ];
        for (row, entries) in table {
            assert!(matches!(fresh(&row, &entries), Err(LedgerError::Diverged(_))), "{entries:?}");
        }
    }

    #[test]
    fn whatever_comes_every_unit_is_accounted_for() {
        // A small deterministic generator: the orders of many batches, repeats among them.
        let mut state = 12_345_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..500 {
            let stock = next(40);
            let mut entries = vec![opened(1, stock)];
            for ms in 2..2 + next(10) {
                let orders: Vec<_> = (0..next(8)).map(|_| (next(200) as u8, 1 + next(4) as u32)).collect();
                entries.push(taken(ms, &orders));
            }
            let replayed = fresh(&row(stock, None), &entries).unwrap();
            assert_eq!(replayed.row.available + replayed.row.held, stock);
        }
    }
}
