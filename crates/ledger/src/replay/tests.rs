//! Tests of the replay's arithmetic: entry by entry, and with pseudo-random histories.

use domain::{
    BuyerId, Change, Entry, EntryId, OrderId, OrderState, Quantity, TakenOrder, TransferId,
    Transferred,
};
use jiff::Timestamp;

use super::{ReplayMode, Replayed, replay};
use crate::{
    LedgerError, PendingReturn, SegmentRow, Transfer, TransferState, statements::ReacquiredOrder,
    touched::Touched,
};

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
    Entry {
        id: EntryId { ms, seq: 0 },
        fingerprint: 7,
        change,
    }
}

fn order_id(n: u8) -> OrderId {
    OrderId::from_bytes([n; 16]).reacquire(0)
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
    entry(
        ms,
        Change::Taken {
            price: None,
            expires_at: Timestamp::UNIX_EPOCH,
            orders: orders.collect(),
        },
    )
}

fn fresh(row: &SegmentRow, entries: &[Entry]) -> Result<Replayed, LedgerError> {
    replay(row, entries, &mut Touched::default(), ReplayMode::Strict)
}

#[test]
fn orders_move_units_from_available_to_held() {
    let replayed = fresh(
        &row(5, None),
        &[
            opened(1, 5),
            taken(2, &[(1, 1), (2, 3)]),
            entry(3, Change::StateSet { epoch: 2 }),
        ],
    )
    .unwrap();
    assert_eq!(
        (replayed.row.available, replayed.row.held, replayed.held),
        (1, 4, 2)
    );
    assert_eq!(
        (replayed.row.checkpoint.unwrap().ms, replayed.row.anchor),
        (3, Some(7))
    );
}

#[test]
fn an_order_that_the_row_cannot_cover_is_rejected_and_a_smaller_one_behind_it_is_held() {
    let replayed = fresh(&row(2, Some(1)), &[taken(2, &[(1, 1), (2, 2), (3, 1)])]).unwrap();
    assert_eq!(replayed.rejected, [order_id(2)]);
    assert_eq!((replayed.row.available, replayed.row.held), (0, 2));
}

#[test]
fn a_repeated_order_changes_nothing() {
    let replayed = fresh(
        &row(5, Some(1)),
        &[taken(2, &[(1, 2), (1, 2)]), taken(3, &[(1, 2)])],
    )
    .unwrap();
    assert_eq!(
        (replayed.row.available, replayed.held, replayed.repeated),
        (3, 1, 2)
    );
}

#[test]
fn a_history_that_does_not_continue_the_row_is_refused() {
    let table = [
        (row(5, None), vec![opened(1, 6)]),
        (row(5, None), vec![taken(1, &[])]),
        (row(5, Some(1)), vec![opened(2, 5)]),
        (row(5, Some(3)), vec![taken(3, &[])]),
        (row(5, Some(3)), vec![taken(5, &[]), taken(4, &[])]),
    ];
    for (row, entries) in table {
        assert!(
            matches!(fresh(&row, &entries), Err(LedgerError::Diverged(_))),
            "{entries:?}"
        );
    }
}

#[test]
fn every_unit_is_accounted_for_after_any_orders() {
    // A small deterministic generator: the orders of many batches, repeats included.
    let mut state = 12_345_u64;
    let mut next = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..500 {
        let stock = next(40);
        let mut entries = vec![opened(1, stock)];
        for ms in 2..2 + next(10) {
            let orders: Vec<_> = (0..next(8))
                .map(|_| (next(200) as u8, 1 + next(4) as u32))
                .collect();
            entries.push(taken(ms, &orders));
        }
        let replayed = fresh(&row(stock, None), &entries).unwrap();
        assert_eq!(replayed.row.available + replayed.row.held, stock);
    }
}

/// Every unit is accounted for, with the other events of an order's life in any order.
#[test]
fn every_unit_is_accounted_for_after_any_returns_and_transfers() {
    let mut state = 54_321_u64;
    let mut next = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..500 {
        let before = SegmentRow {
            available: 20,
            returning: 12,
            allocated: 32,
            ..row(0, Some(1))
        };
        let mut touched = touched(&before, 4);
        let entries: Vec<_> = (2..2 + next(12))
            .map(|ms| entry(ms, anything(&mut next)))
            .collect();
        let Ok(replayed) = replay(&before, &entries, &mut touched, ReplayMode::Lenient) else {
            panic!("it never refuses")
        };
        let SegmentRow {
            allocated,
            available,
            held,
            confirmed,
            returning,
            ..
        } = replayed.row;
        assert_eq!(
            available + held + confirmed + returning,
            allocated,
            "{entries:?}"
        );
        let pending: u64 = touched
            .returns
            .values()
            .chain(touched.changes.returns.values())
            .map(|back| u64::from(back.quantity.get()))
            .sum();
        assert_eq!(pending, returning, "{entries:?}");
        let left = |transfer: &Transfer| {
            i64::try_from(transfer.moved).unwrap()
                * if transfer.state == TransferState::Out {
                    1
                } else {
                    0
                }
        };
        let out: i64 = touched
            .transfers
            .values()
            .filter(|transfer| transfer.from.is_some())
            .map(left)
            .sum();
        let new: i64 = touched
            .transfers
            .values()
            .filter(|transfer| transfer.from.is_none())
            .map(|transfer| 3 - left(transfer))
            .sum();
        assert_eq!(
            i64::try_from(allocated).unwrap(),
            32 - out + new,
            "{entries:?}"
        );
    }
}

/// Orders 0 to n: pending returns of 3 units, and possible reacquisitions of 2 units, the last ones
/// for orders that were refunded meanwhile; transfers out and in of 3 units.
fn touched(row: &SegmentRow, n: u8) -> Touched {
    let mut touched = Touched::default();
    for order in 0..n {
        let (id, buyer) = (order_id(order), BuyerId::new("ann").unwrap());
        let back = PendingReturn {
            id,
            segment: row.key.clone(),
            buyer,
            quantity: Quantity::new(3).unwrap(),
        };
        touched.returns.insert(id, back);
        let state = if order < n / 2 {
            OrderState::Expired
        } else {
            OrderState::Refunded
        };
        let quantity = Quantity::new(2).unwrap();
        touched.reacquired.insert(
            id,
            ReacquiredOrder {
                id,
                state,
                attempt: 0,
                segment: 9,
                quantity,
                expires_ms: 0,
            },
        );
        let (ends, moved, state) = if order % 2 == 0 {
            ((Some(0), None), 0, TransferState::Planned)
        } else {
            ((None, Some(0)), 3, TransferState::Out)
        };
        let (item, since) = (row.key.item.clone(), Timestamp::UNIX_EPOCH);
        let transfer = Transfer {
            id: transfer_id(order),
            item,
            from: ends.0,
            to: ends.1,
            quantity: 3,
            moved,
            state,
            since,
        };
        touched.transfers.insert(transfer.id, transfer);
    }
    touched
}

fn transfer_id(n: u8) -> TransferId {
    TransferId::from_bytes([n; 16])
}

fn anything(next: &mut impl FnMut(u64) -> u64) -> Change {
    let n = next(5) as u8;
    let order = |id| TakenOrder {
        id,
        buyer: BuyerId::new("ann").unwrap(),
        quantity: Quantity::new(3).unwrap(),
    };
    let transferred = Transferred {
        id: transfer_id(n),
        units: 3,
        token: 1,
    };
    match next(6) {
        0 => Change::Taken {
            price: None,
            expires_at: Timestamp::UNIX_EPOCH,
            orders: vec![order(order_id(100 + n))],
        },
        1 => Change::Taken {
            price: None,
            expires_at: Timestamp::UNIX_EPOCH,
            orders: vec![order(order_id(n).reacquire(1 + next(3) as u8))],
        },
        2 => Change::Released {
            orders: vec![order(order_id(n))],
        },
        3 => Change::TransferredOut(transferred),
        4 => Change::TransferredIn(transferred),
        _ => Change::Adjusted {
            units: next(9),
            epoch: 1,
            token: 1,
        },
    }
}
