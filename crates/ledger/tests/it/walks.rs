//! A walk over the orders of an item reads one snapshot in pieces, and what audits have found is
//! kept.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use domain::{Item, OrderState};
use jiff::Timestamp;
use ledger::{AuditResult, FailedAudit, GoodAudit, Ledger, Pace, WalkProgress};
use testkit::{on_both_databases, tested};

use crate::env::{
    TestEnv, assert_identity, becomes, id, opened, order, order_id, record, segment, taken,
};

/// Records and confirms orders between the pieces.
struct Moving {
    ledger: Arc<dyn Ledger>,
    item: Item,
    pieces: AtomicUsize,
    shares: Mutex<Vec<f64>>,
}

#[async_trait]
impl Pace for Moving {
    async fn piece_read(&self, progress: WalkProgress) {
        self.shares.lock().unwrap().push(progress.share);
        let piece = self.pieces.fetch_add(1, Ordering::SeqCst);
        if piece < 8 {
            let first = 1000 + 10 * piece;
            let orders = (first..first + 10)
                .map(|n| order(&self.item, n, 1))
                .collect();
            let entry = taken(id(10 + piece as u64, 0), orders);
            record(&self.ledger, &segment(&self.item, 0), vec![entry]).await;
            for n in 20 * piece..20 * piece + 10 {
                let order = order_id(&self.item, n);
                becomes(&self.ledger, order, OrderState::Confirmed).await;
            }
        }
    }

    fn piece_orders(&self) -> u64 {
        20
    }
}

async fn sold(env: &TestEnv) -> Item {
    let item = env.create_unlimited("vase", 2000, 2).await;
    for number in 0..2 {
        let orders = (0..200)
            .map(|n| order(&item, 200 * usize::from(number) + n, 1))
            .collect();
        let entries = vec![opened(&item, number), taken(id(2, 0), orders)];
        record(env, &segment(&item, number), entries).await;
    }
    item
}

#[tested(on_both_databases(crate::env::run))]
async fn a_walk_in_pieces_reads_one_snapshot_while_orders_move(env: &TestEnv) {
    let ledger = env.ledger().await;
    let item = sold(env).await;
    let pace = Moving {
        ledger: Arc::clone(&ledger),
        item: item.clone(),
        pieces: AtomicUsize::default(),
        shares: Mutex::default(),
    };
    let totals = ledger.walk(&item.id, &pace).await.unwrap().unwrap();
    assert_identity(&totals);
    assert_eq!(
        totals.orders_by_state,
        [("held".to_owned(), 400)],
        "as they were when it began"
    );
    let shares = pace.shares.into_inner().unwrap();
    assert!(shares.len() > 8, "{shares:?}");
    assert!(
        shares.is_sorted_by(|before, after| before < after),
        "{shares:?}"
    );
    assert!((shares[shares.len() - 1] - 1.0).abs() < f64::EPSILON);
    let after = ledger.totals(&item.id).await.unwrap().unwrap();
    assert_identity(&after);
    let count = |state: OrderState| after.orders_in(state);
    assert_eq!(
        [OrderState::Held, OrderState::Confirmed].map(count),
        [400, 80]
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn a_walk_without_an_item_reads_nothing(env: &TestEnv) {
    let missing = "missing".parse().unwrap();
    assert!(env.totals(&missing).await.unwrap().is_none());
    assert!(env.item_rows(&missing).await.unwrap().is_none());
    assert_eq!(env.last_audits(&missing).await.unwrap().fault(), None);
}

#[tested(on_both_databases(crate::env::run))]
async fn the_rows_of_an_item_tell_what_the_orders_do(env: &TestEnv) {
    let item = env.create_unlimited("vase", 10, 1).await;
    let orders = (0..13).map(|n| order(&item, n, 1)).collect();
    let entries = vec![opened(&item, 0), taken(id(2, 0), orders)];
    let recorded = record(env, &segment(&item, 0), entries).await;
    assert_eq!(recorded.rejected.len(), 3, "the ledger cannot cover them");
    let other = env.create_unlimited("bowl", 10, 1).await;
    record(env, &segment(&other, 0), vec![opened(&other, 0)]).await;
    for (id, rejected) in [(&item.id, 3), (&other.id, 0)] {
        let rows = env.item_rows(id).await.unwrap().unwrap();
        let totals = env.totals(id).await.unwrap().unwrap();
        assert_eq!(
            (rows.rejected_orders, rows.refund_due_orders),
            (rejected, 0)
        );
        let by_orders = totals.rows();
        assert_eq!(rows.segments, by_orders.segments);
        assert_eq!(rows.item, by_orders.item);
        assert_eq!(
            (
                rows.in_transit,
                rows.rejected_orders,
                rows.refund_due_orders
            ),
            (
                by_orders.in_transit,
                by_orders.rejected_orders,
                by_orders.refund_due_orders
            )
        );
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn the_last_good_audit_and_the_last_fault_are_kept(env: &TestEnv) {
    let item = env.create_unlimited("vase", 10, 1).await;
    let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).unwrap();
    let good = |second: i64| GoodAudit {
        at: at(second),
        revision: u64::MAX - second.cast_unsigned(),
    };
    let failed = |second: i64| FailedAudit {
        at: at(second),
        miscounted: 3,
        oversold: second.cast_unsigned(),
    };
    let note = async |result| env.note_audit(&item.id, result).await.unwrap();
    let last = async || env.last_audits(&item.id).await.unwrap();
    assert_eq!(last().await, ledger::LastAudits::default());
    note(AuditResult::Failed(failed(5))).await;
    assert_eq!(
        (last().await.good, last().await.fault()),
        (None, Some(failed(5)))
    );
    // Whatever comes late replaces nothing that is newer.
    for second in [7, 6] {
        note(AuditResult::Good(good(second))).await;
        assert_eq!(
            (last().await.good, last().await.fault()),
            (Some(good(7)), None)
        );
        assert_eq!(env.good_audit(&item.id).await.unwrap(), Some(good(7)));
    }
    for second in [9, 8] {
        note(AuditResult::Failed(failed(second))).await;
        assert_eq!(last().await.fault(), Some(failed(9)));
    }
}
