//! A purge deletes the orders of an archived item in steps, and leaves its figures.

use std::{sync::Arc, time::Duration};

use domain::{ItemState, OrderState, PaymentId};
use jiff::Timestamp;
use ledger::{
    Changed, ItemChange, NotedRefund, PurgeRequest, PurgeStep, RefundReport, RefundState,
    Transition,
};
use reconciler::{Archived, Purged, ReconcilerSettings, archive_once, purge_once};
use testkit::{Sale, TestEnv, buyer, eventually, on_both_databases, shared_lock};

use crate::env::quick;

on_both_databases!(crate::env::run:
    a_reconciler_purges_archived_items_on_request,
    a_purge_that_was_interrupted_is_continued,
    money_that_is_owed_keeps_its_order,
    a_failed_refund_keeps_its_order,
);

/// An archived item with a paid order, a cancelled one, and some that were expired.
async fn archived(env: &TestEnv) -> Arc<Sale> {
    let sale = env.sell(40, 2).await;
    let paid = sale.hold(&buyer(100), "key", 2).await;
    sale.step(paid, OrderState::Confirmed).await;
    let ended = sale.hold_many(0..20).await;
    for (n, order) in ended.into_iter().enumerate() {
        let to = match n {
            0 => OrderState::Cancelled,
            _ => OrderState::Expired,
        };
        let order = sale.step(order, to).await;
        sale.release(&order).await.unwrap();
    }
    let change = ItemChange {
        state: Some(ItemState::Closed),
        ..ItemChange::default()
    };
    let changed = sale
        .ledger
        .change_item(&sale.item.id, &change, None, "admin");
    let Changed::Item(closed) = changed.await.unwrap() else {
        panic!("it can be closed");
    };
    sale.stock.configure(&closed).await.unwrap();
    sale.comes_to_rest().await;
    sale.all_drained().await;
    let (stock, ledger) = (Arc::clone(&sale.stock), Arc::clone(&sale.ledger));
    let lock = shared_lock().await;
    let archived = archive_once(stock, ledger, lock, &sale.item.id, "eve").await;
    assert_eq!(archived.unwrap(), Some(Archived::Done));
    sale
}

/// The orders are gone, so nothing is left to compare the rows with when the test ends.
async fn forget(env: &TestEnv) {
    for sale in env.take_sales() {
        sale.stock.shutdown().await;
    }
}

async fn orders(sale: &Sale) -> u64 {
    sale.orders().await.values().sum()
}

async fn a_reconciler_purges_archived_items_on_request(env: &Arc<TestEnv>) {
    env.record().await;
    let (sale, other) = (archived(env).await, archived(env).await);
    let (id, report) = (&sale.item.id, sale.report().await);
    env.reconcile(ReconcilerSettings {
        purge_interval: Duration::from_millis(20),
        ..quick()
    })
    .await;
    let now = Timestamp::now();
    let before = sale.ledger.final_audit(id).await.unwrap().unwrap().at;
    let early = sale
        .ledger
        .request_purge(id, before - Duration::from_secs(1), "eve");
    assert_eq!(early.await.unwrap(), PurgeRequest::TooEarly(before));
    for _ in 0..2 {
        let noted = sale.ledger.request_purge(id, now, "eve").await.unwrap();
        assert!(matches!(noted, PurgeRequest::Noted | PurgeRequest::Purged));
    }
    eventually("the purge", async || sale.journal("purge").await.len() == 1).await;
    assert_eq!((orders(&sale).await, orders(&other).await), (0, 21));
    assert_eq!(sale.report().await, report, "the final audit stays");
    let journal = &sale.journal("purge").await[0].entry;
    assert_eq!(
        (&*journal.actor, &journal.after["orders"]),
        ("eve", &21.into())
    );
    let again = sale.ledger.request_purge(id, now, "eve").await;
    assert_eq!(again.unwrap(), PurgeRequest::Purged);
    assert_eq!(sale.ledger.items_to_purge().await.unwrap(), []);
    let open = env.sell(10, 1).await;
    let refused = sale.ledger.request_purge(&open.item.id, now, "eve").await;
    assert_eq!(refused.unwrap(), PurgeRequest::NotArchived);
    let unknown = "none".parse().unwrap();
    let none = sale.ledger.request_purge(&unknown, now, "eve");
    assert_eq!(none.await.unwrap(), PurgeRequest::NoItem);
    forget(env).await;
}

async fn a_purge_that_was_interrupted_is_continued(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = archived(env).await;
    let (id, now) = (&sale.item.id, Timestamp::now());
    let refused = sale.ledger.purge(id, None, 5).await.unwrap();
    assert_eq!(refused, PurgeStep::NotRequested);
    sale.ledger.request_purge(id, now, "eve").await.unwrap();
    let mut after = None;
    for left in [16, 11] {
        let PurgeStep::Continues(last) = sale.ledger.purge(id, after, 5).await.unwrap() else {
            panic!("{left} orders are left");
        };
        assert_eq!(orders(&sale).await, left);
        after = last;
    }
    // The process dies here, and the next one begins at the front.
    let purged = purge_once(&*sale.ledger, id, now, "cli").await.unwrap();
    assert_eq!(purged, Some(Purged::Done(21)), "none is counted twice");
    assert_eq!(orders(&sale).await, 0);
    let [request, done] = ["purge_request", "purge"];
    assert_eq!(sale.journal(request).await.len(), 1);
    assert_eq!(sale.journal(done).await.len(), 1);
    forget(env).await;
}

async fn money_that_is_owed_keeps_its_order(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = archived(env).await;
    let (id, now) = (&sale.item.id, Timestamp::now());
    // A payment that comes after the archive.
    let late = sale.order_id(&buyer(7), "key");
    sale.step(late, OrderState::RefundDue).await;
    for _ in 0..2 {
        let purged = purge_once(&*sale.ledger, id, now, "cli").await.unwrap();
        assert_eq!(purged, Some(Purged::Waits(1)));
        assert_eq!(sale.state(late).await, Some(OrderState::RefundDue));
    }
    let due = sale.ledger.refunds_due_by_item().await.unwrap();
    assert_eq!(due, [(id.clone(), 1)]);
    sale.step(late, OrderState::Refunded).await;
    let purged = purge_once(&*sale.ledger, id, now, "cli").await.unwrap();
    assert_eq!(purged, Some(Purged::Done(21)));
    assert_eq!(sale.state(late).await, None);
    forget(env).await;
}

async fn a_failed_refund_keeps_its_order(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = archived(env).await;
    let (id, now) = (&sale.item.id, Timestamp::now());
    let (ledger, late) = (&sale.ledger, sale.order_id(&buyer(7), "key"));
    let payment = PaymentId::new(format!("pi-{id}")).unwrap();
    let paid = [Transition {
        order: ledger.order(late).await.unwrap().unwrap(),
        to: OrderState::RefundDue,
        payment: Some(payment.clone()),
    }];
    assert!(ledger.transition(&paid).await.unwrap()[0].is_some());
    sale.step(late, OrderState::Refunded).await;
    let report = RefundReport {
        id: format!("re-{id}"),
        payment: payment.clone(),
        payer: None,
        state: RefundState::Failed,
        amount: 5,
        currency: None,
        created_at: None,
        at: None,
    };
    let noted = ledger.note_refund(&report).await.unwrap();
    assert!(
        matches!(noted, NotedRefund::Of { is_due: true, .. }),
        "{noted:?}"
    );
    for _ in 0..2 {
        let purged = purge_once(&**ledger, id, now, "cli").await.unwrap();
        assert_eq!(purged, Some(Purged::Waits(1)));
    }
    let due = ledger.failed_refunds_by_item().await.unwrap();
    assert_eq!(due, [(id.clone(), 1)]);
    let due = ledger.list_payments_due(None, 10).await.unwrap().rows;
    assert!(ledger.note_refund_done(due[0].id, "eve").await.unwrap());
    let purged = purge_once(&**ledger, id, now, "cli").await.unwrap();
    assert_eq!(purged, Some(Purged::Done(21)));
    // The refund is gone with its order, so a late report of it is about nothing.
    let late = ledger.note_refund(&report).await.unwrap();
    assert_eq!(late, NotedRefund::Unknown);
    forget(env).await;
}
