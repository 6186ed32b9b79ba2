//! A purge deletes the orders of an archived item in steps, and leaves its figures.

use std::{sync::Arc, time::Duration};

use domain::{ItemState, OrderId, OrderState, PaymentId};
use jiff::Timestamp;
use ledger::{
    Changed, ItemChange, NewJournalEntry, NotedRefund, PaymentReturn, PurgeRequest, PurgeStep,
    RefundReport, RefundState, ReturnedPayment, Transition,
};
use reconciler::{Archived, Purged, ReconcilerSettings, archive_once, purge_once};
use serde_json::json;
use testkit::{Sale, TestEnv, buyer, eventually, on_both_databases, shared_lock};

use crate::{env::quick, metrics};

on_both_databases!(crate::env::run:
    a_reconciler_purges_archived_items_on_request,
    a_purge_that_was_interrupted_is_continued,
    money_that_is_owed_keeps_its_order,
    a_failed_refund_keeps_its_order,
    a_refund_that_is_on_its_way_keeps_its_order,
    a_purge_makes_no_payment_due_and_leaves_those_that_are,
    the_failed_refunds_of_archived_items_are_shown,
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

/// An order that was paid too late, and whose money was returned. Returns its payment.
async fn refunded(sale: &Sale, order: OrderId) -> PaymentId {
    let payment = PaymentId::new(format!("pi-{}", sale.item.id)).unwrap();
    let paid = [Transition {
        order: sale.ledger.order(order).await.unwrap().unwrap(),
        to: OrderState::RefundDue,
        payment: Some(payment.clone()),
    }];
    assert!(sale.ledger.transition(&paid).await.unwrap()[0].is_some());
    sale.step(order, OrderState::Refunded).await;
    payment
}

fn report(sale: &Sale, payment: &PaymentId, state: RefundState) -> RefundReport {
    RefundReport {
        id: format!("re-{}", sale.item.id),
        payment: payment.clone(),
        payer: None,
        state,
        amount: 5,
        currency: None,
        created_at: None,
        at: None,
    }
}

async fn a_refund_that_is_on_its_way_keeps_its_order(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = archived(env).await;
    let (id, now) = (&sale.item.id, Timestamp::now());
    let (ledger, late) = (&sale.ledger, sale.order_id(&buyer(7), "key"));
    let payment = refunded(&sale, late).await;
    for (state, expected) in [
        (RefundState::Pending, Purged::Waits(1)),
        (RefundState::Succeeded, Purged::Done(21)),
    ] {
        let report = report(&sale, &payment, state);
        ledger.note_refund(&report).await.unwrap();
        let purged = purge_once(&**ledger, id, now, "cli").await.unwrap();
        assert_eq!(purged, Some(expected), "{state:?}");
    }
    forget(env).await;
}

/// A payment that was refused first and accepted then has paid its order, and one that nothing took is
/// due: both whether the order still exists or not.
async fn a_purge_makes_no_payment_due_and_leaves_those_that_are(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = archived(env).await;
    let (id, now) = (&sale.item.id, Timestamp::now());
    let (ledger, late) = (&sale.ledger, sale.order_id(&buyer(7), "key"));
    let paid = PaymentId::new(format!("pi-{id}")).unwrap();
    let stray = PaymentId::new(format!("pi-stray-{id}")).unwrap();
    for payment in [&paid, &stray] {
        let entry = NewJournalEntry {
            item: id.clone(),
            actor: "payment".into(),
            action: "unmatched_payment".into(),
            token: None,
            before: json!({ "order": late, "state": "expired" }),
            after: json!({ "payment": payment, "amount": 99 }),
        };
        let once = format!("unmatched_payment {payment}");
        assert!(ledger.note_once(&entry, &once).await.unwrap());
    }
    let accepted = ledger.list_payments_due(None, 1).await.unwrap().rows[0].id;
    refunded(&sale, late).await;
    let due = async || {
        let rows = ledger.list_payments_due(None, 10).await.unwrap().rows;
        let payments = rows.iter().map(|row| row.entry.after["payment"].clone());
        payments.collect::<Vec<_>>()
    };
    assert_eq!(due().await, [json!(stray)]);
    let purged = purge_once(&**ledger, id, now, "cli").await.unwrap();
    assert_eq!(purged, Some(Purged::Done(21)));
    assert_eq!(due().await, [json!(stray)]);
    assert!(!ledger.note_refund_done(accepted, "eve").await.unwrap());
    let returned = PaymentReturn {
        payment: stray.clone(),
        payer: None,
        at: Some(now),
    };
    let noted = ledger.note_return(&returned).await.unwrap();
    let ReturnedPayment::Of(payer) = noted else {
        panic!("the journal has it: {noted:?}");
    };
    assert!(payer.order == late && !payer.is_paid, "{payer:?}");
    assert!(due().await.is_empty());
    forget(env).await;
}

/// A refund may fail long after its item was archived.
async fn the_failed_refunds_of_archived_items_are_shown(env: &Arc<TestEnv>) {
    metrics::supervise();
    env.record().await;
    let sale = archived(env).await;
    env.reconcile(ReconcilerSettings {
        audit_interval: Duration::from_millis(50),
        ..quick()
    })
    .await;
    let shows = async |name: &str, wanted: f64| {
        eventually(&format!("{name} of {wanted}"), async || {
            metrics::gauge(name, sale.item.id.as_str()) == Some(wanted)
        })
        .await;
    };
    let (ledger, late) = (&sale.ledger, sale.order_id(&buyer(7), "key"));
    sale.step(late, OrderState::RefundDue).await;
    shows("stockade_refund_due_orders", 1.0).await;
    let other = sale.order_id(&buyer(8), "key");
    let payment = refunded(&sale, other).await;
    sale.step(late, OrderState::Refunded).await;
    shows("stockade_refund_due_orders", 0.0).await;
    let report = report(&sale, &payment, RefundState::Failed);
    ledger.note_refund(&report).await.unwrap();
    shows("stockade_failed_refunds", 1.0).await;
    let row = ledger.list_payments_due(None, 1).await.unwrap().rows[0].id;
    assert!(ledger.note_refund_done(row, "eve").await.unwrap());
    shows("stockade_failed_refunds", 0.0).await;
    forget(env).await;
}
