use domain::{BuyerId, Change, Entry, EntryId, OrderId, Quantity, TakenOrder};
use jiff::Timestamp;

use super::{Reading, Replayed, replay};
use crate::{LedgerError, SegmentRow, touched::Touched};

fn row(available: u64, checkpoint: Option<u64>) -> SegmentRow {
    SegmentRow {
        key: "vase:0".parse().unwrap(),
        allocated: available,
        available,
        held: 0,
        confirmed: 0,
        returning: 0,
        checkpoint: checkpoint.map(|ms| EntryId { ms, seq: 0 }),
        anchor: checkpoint.map(|_| 0),
        version: 1,
        fence: 0,
    }
}

fn entry(ms: u64, change: Change) -> Entry {
    Entry { id: EntryId { ms, seq: 0 }, fingerprint: 7, change }
}

fn order_id(n: u8) -> OrderId {
    OrderId::from_bytes([n; 16]).retake(0)
}

fn opened(ms: u64, units: u64) -> Entry {
    entry(ms, Change::Opened { units, epoch: 1 })
}

fn taken(ms: u64, orders: &[(u8, u32)]) -> Entry {
    let orders = orders.iter().map(|&(id, quantity)| TakenOrder {
        id: order_id(id),
        buyer: BuyerId::new("ann").unwrap(),
        quantity: Quantity::new(quantity).unwrap(),
    });
    entry(ms, Change::Taken { expires_at: Timestamp::UNIX_EPOCH, orders: orders.collect() })
}

fn fresh(row: &SegmentRow, entries: &[Entry]) -> Result<Replayed, LedgerError> {
    replay(row, entries, &mut Touched::default(), Reading::Strict)
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
    assert_eq!(replayed.rejected, [order_id(2)]);
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
