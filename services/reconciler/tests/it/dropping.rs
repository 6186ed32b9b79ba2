//! A drop exports what an archived item has left, deletes it in batches, and leaves its figures.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use domain::{ItemState, OrderId, OrderState, PaymentId};
use jiff::Timestamp;
use ledger::{
    Changed, DropEnd, DropRequest, DroppedRows, ExportedRow, ItemChange, NewJournalEntry,
    NotedRefund, PaymentReturn, RefundReport, RefundState, ReturnedPayment, SaleTable, Transition,
};
use reconciler::{Archived, DropError, Dropped, ReconcilerSettings, archive_once, drop_once};
use serde_json::{Value, json};
use testkit::{Backend, Sale, TestEnv, buyer, eventually, on_both_databases, shared_lock, tested};

use crate::{env::quick, metrics};

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

/// A drop whose exports are not looked at.
async fn dropped(sale: &Sale, actor: &str) -> Dropped {
    let folder = tempfile::tempdir().unwrap();
    let (id, now) = (&sale.item.id, Timestamp::now());
    let dropped = drop_once(&*sale.ledger, id, now, actor, folder.path()).await;
    match dropped.unwrap().unwrap() {
        Dropped::Done { orders, .. } => done(orders),
        other => other,
    }
}

fn done(orders: u64) -> Dropped {
    let exports = Vec::new();
    Dropped::Done { orders, exports }
}

/// The files of the folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// The rows of a table in the exports.
fn exported(files: &[PathBuf], table: &str) -> Vec<Value> {
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
    let lines: Vec<Value> = texts
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect();
    let rows = lines.into_iter().filter(|line| line["table"] == table);
    rows.map(|line| line["row"].clone()).collect()
}

/// All orders of the item that go.
async fn order_rows(sale: &Sale) -> Vec<ExportedRow> {
    let page = sale
        .ledger
        .export_page(&sale.item.id, SaleTable::Orders, None, 1000);
    page.await.unwrap().rows
}

async fn orders(sale: &Sale) -> u64 {
    sale.orders().await.values().sum()
}

#[tested(on_both_databases(crate::env::run))]
async fn a_reconciler_drops_archived_items_on_request(env: &Arc<TestEnv>) {
    env.record().await;
    let (sale, other) = (archived(env).await, archived(env).await);
    let (id, report) = (&sale.item.id, sale.report().await);
    let folder = tempfile::tempdir().unwrap();
    env.reconcile(ReconcilerSettings {
        drop_interval: Duration::from_millis(20),
        drop_exports: Some(folder.path().join("new")),
        ..quick()
    })
    .await;
    let now = Timestamp::now();
    let before = sale.ledger.final_audit(id).await.unwrap().unwrap().at;
    let early = sale
        .ledger
        .request_drop(id, before - Duration::from_secs(1), "eve");
    assert_eq!(early.await.unwrap(), DropRequest::TooEarly(before));
    for _ in 0..2 {
        let noted = sale.ledger.request_drop(id, now, "eve").await.unwrap();
        assert!(matches!(noted, DropRequest::Noted | DropRequest::Dropped));
    }
    eventually("the drop", async || sale.journal("drop").await.len() == 1).await;
    assert_eq!((orders(&sale).await, orders(&other).await), (0, 21));
    let mut after = sale.report().await;
    assert!(after.dropped_at.take().is_some(), "{after:?}");
    assert_eq!(after, report, "the final audit stays");
    let journal = &sale.journal("drop").await[0].entry;
    assert_eq!(
        (&*journal.actor, &journal.after["orders"]),
        ("eve", &21.into())
    );
    let files = files(&folder.path().join("new"));
    assert_eq!(exported(&files, "orders").len(), 21);
    let again = sale.ledger.request_drop(id, now, "eve").await;
    assert_eq!(again.unwrap(), DropRequest::Dropped);
    assert_eq!(dropped(&sale, "eve").await, done(21));
    assert_eq!(sale.ledger.items_to_drop().await.unwrap(), []);
    let open = env.sell(10, 1).await;
    let refused = sale.ledger.request_drop(&open.item.id, now, "eve").await;
    assert_eq!(refused.unwrap(), DropRequest::NotArchived);
    let unknown = "none".parse().unwrap();
    let none = sale.ledger.request_drop(&unknown, now, "eve");
    assert_eq!(none.await.unwrap(), DropRequest::NoItem);
    forget(env).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn an_item_is_dropped_by_itself_when_it_is_old_enough(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = archived(env).await;
    let folder = tempfile::tempdir().unwrap();
    let at = sale.ledger.final_audit(&sale.item.id).await.unwrap();
    let early = at.unwrap().at - Duration::from_millis(1);
    let none = sale.ledger.items_archived_before(early, 9).await.unwrap();
    assert_eq!(none, []);
    env.reconcile(ReconcilerSettings {
        drop_interval: Duration::from_millis(20),
        drop_after: Some(Duration::from_millis(200)),
        drop_exports: Some(folder.path().to_owned()),
        ..quick()
    })
    .await;
    eventually("the drop", async || sale.journal("drop").await.len() == 1).await;
    assert_eq!(orders(&sale).await, 0);
    assert_eq!(sale.journal("drop").await[0].entry.actor, "reconciler");
    assert_eq!(exported(&files(folder.path()), "orders").len(), 21);
    forget(env).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_drop_that_was_interrupted_is_continued(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = archived(env).await;
    let (id, now) = (&sale.item.id, Timestamp::now());
    let rows = order_rows(&sale).await;
    assert_eq!(rows.len(), 21);
    let table = SaleTable::Orders;
    let refused = sale.ledger.drop_rows(id, table, &rows).await.unwrap();
    assert_eq!(refused, None);
    let refused = sale.ledger.finish_drop(id).await.unwrap();
    assert_eq!(refused, DropEnd::NotRequested);
    sale.ledger.request_drop(id, now, "eve").await.unwrap();
    for (batch, left) in [(&rows[..5], 16), (&rows[5..10], 11)] {
        for deleted in [5, 0] {
            let step = sale.ledger.drop_rows(id, table, batch).await.unwrap();
            let changed = 0;
            assert_eq!(step, Some(DroppedRows { deleted, changed }));
        }
        assert_eq!(orders(&sale).await, left);
    }
    let end = sale.ledger.finish_drop(id).await.unwrap();
    assert!(matches!(end, DropEnd::RowsLeft(11..)), "{end:?}");
    // The process dies here, and the next one begins at the front.
    let folder = tempfile::tempdir().unwrap();
    let dropped = drop_once(&*sale.ledger, id, now, "cli", folder.path()).await;
    let exports = files(folder.path());
    assert_eq!(exported(&exports, "orders").len(), 11);
    let expected = Dropped::Done {
        orders: 21,
        exports,
    };
    assert_eq!(dropped.unwrap(), Some(expected), "none is counted twice");
    assert_eq!(orders(&sale).await, 0);
    for action in ["drop_request", "drop_export", "drop"] {
        assert_eq!(sale.journal(action).await.len(), 1, "{action}");
    }
    forget(env).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_row_that_has_changed_since_its_export_stays_for_the_next_one(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = archived(env).await;
    let (id, now) = (&sale.item.id, Timestamp::now());
    let mut rows = order_rows(&sale).await;
    sale.ledger.request_drop(id, now, "eve").await.unwrap();
    // An order that is paid late and returned, and a line that the disk has changed.
    let late = sale.order_id(&buyer(7), "key");
    refunded(&sale, late).await;
    let other = rows
        .iter()
        .position(|row| row.key != late.as_uuid().as_u128())
        .unwrap();
    rows[other].document.push(' ');
    let step = sale.ledger.drop_rows(id, SaleTable::Orders, &rows).await;
    let expected = DroppedRows {
        deleted: 19,
        changed: 2,
    };
    assert_eq!(step.unwrap(), Some(expected));
    assert_eq!(sale.state(late).await, Some(OrderState::Refunded));
    let folder = tempfile::tempdir().unwrap();
    let dropped = drop_once(&*sale.ledger, id, now, "cli", folder.path()).await;
    assert!(matches!(
        dropped.unwrap(),
        Some(Dropped::Done { orders: 21, .. })
    ));
    let states = exported(&files(folder.path()), "orders");
    let states: BTreeSet<_> = states
        .iter()
        .map(|row| row["order"]["state"].as_str().unwrap())
        .collect();
    assert!(
        states.len() == 2 && states.contains("refunded"),
        "{states:?}"
    );
    forget(env).await;
}

/// A folder that cannot be made stands for a disk that is full: the first write fails.
#[tested(on_both_databases(crate::env::run))]
async fn a_drop_without_its_export_deletes_nothing(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = archived(env).await;
    let (id, now) = (&sale.item.id, Timestamp::now());
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken");
    fs::write(&taken, "no folder").unwrap();
    for _ in 0..2 {
        let failed = drop_once(&*sale.ledger, id, now, "cli", &taken).await;
        assert!(matches!(failed, Err(DropError::File { .. })), "{failed:?}");
        assert_eq!(orders(&sale).await, 21);
    }
    assert_eq!(sale.journal("drop_export").await.len(), 0);
    // What a killed process has left is no export, and hinders none.
    let partial = format!("{id}-1-1.jsonl.partial");
    fs::write(folder.path().join(&partial), "{\"table\":\"or").unwrap();
    let dropped = drop_once(&*sale.ledger, id, now, "cli", folder.path()).await;
    let Some(Dropped::Done {
        orders: 21,
        exports,
    }) = dropped.unwrap()
    else {
        panic!("it has a folder now");
    };
    assert_eq!(exported(&exports, "orders").len(), 21);
    let noted = &sale.journal("drop_export").await[0].entry.after;
    let name = exports[0].file_name().unwrap().to_str().unwrap();
    assert_eq!(noted["file"], json!(name));
    assert_eq!(noted["orders"], 21);
    forget(env).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn the_journal_keeps_payments_the_end_of_the_item_and_the_names_of_admins(
    env: &Arc<TestEnv>,
) {
    env.record().await;
    let sale = archived(env).await;
    let (id, now) = (&sale.item.id, Timestamp::now());
    let entry_by = |actor: &str, action: &str| NewJournalEntry {
        item: id.clone(),
        actor: actor.into(),
        action: action.into(),
        token: None,
        before: json!({ "text": "a \"quoted\"\nline" }),
        after: json!({ "payment": format!("pi-{id}"), "amount": 5 }),
    };
    let entry = |action: &str| entry_by("admin", action);
    for kept in ["create", "limit,window", "refund"] {
        sale.ledger.note(&entry(kept)).await.unwrap();
    }
    for (actor, gone) in [
        ("reconciler", "repair"),
        ("admin", "cancel"),
        ("admin", "extend"),
    ] {
        sale.ledger.note(&entry_by(actor, gone)).await.unwrap();
    }
    let unmatched = entry("unmatched_payment");
    let once = sale.ledger.note_once(&unmatched, "unmatched pi");
    assert!(once.await.unwrap());
    let folder = tempfile::tempdir().unwrap();
    let dropped = drop_once(&*sale.ledger, id, now, "cli", folder.path()).await;
    assert!(matches!(dropped.unwrap(), Some(Dropped::Done { .. })));
    let journal = sale.ledger.journal(id, 1000).await.unwrap();
    let kept: BTreeSet<_> = journal
        .iter()
        .map(|entry| entry.entry.action.as_str())
        .collect();
    let expected = [
        "archive",
        "create",
        "drop",
        "drop_export",
        "drop_request",
        "limit,window",
        "refund",
        "state",
        "unmatched_payment",
    ];
    assert_eq!(kept, BTreeSet::from(expected));
    let gone = exported(&files(folder.path()), "journal");
    let gone: Vec<_> = gone.iter().map(|row| row["action"].as_str()).collect();
    for action in ["repair", "cancel", "extend"] {
        assert!(gone.contains(&Some(action)), "{gone:?}");
    }
    // A repeated report of the payment still finds itself.
    let again = sale.ledger.note_once(&unmatched, "unmatched pi");
    assert!(!again.await.unwrap());
    forget(env).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn events_go_when_they_are_old_and_every_webhook_has_them(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = archived(env).await;
    let (id, now) = (&sale.item.id, Timestamp::now());
    let rows = async || {
        let page = sale.ledger.export_page(id, SaleTable::Events, None, 1000);
        page.await.unwrap().rows
    };
    assert_eq!(
        rows().await,
        [],
        "readers that are a little behind get them"
    );
    let old = match env.database.backend {
        Backend::Postgres => "UPDATE events SET at = at - interval '2 hours'",
        Backend::Sqlite => "UPDATE events SET at = at - 7200000",
    };
    let all = env.database.execute(old).await.unwrap();
    assert!(all > 0, "the archive is an event");
    // Transactions of other tests hide the newest events for a moment.
    eventually("the old events", async || rows().await.len() as u64 == all).await;
    let before = rows().await;
    let from_start = match env.database.backend {
        Backend::Postgres => {
            "INSERT INTO sinks (name, created_at, xid, seq, served_at) VALUES ('late', now(), '0', 0, now())"
        }
        Backend::Sqlite => {
            "INSERT INTO sinks (name, created_at, seq, served_at) VALUES ('late', 0, 0, unixepoch() * 1000)"
        }
    };
    env.database.execute(from_start).await.unwrap();
    assert_eq!(rows().await, [], "a sink has yet to get them");
    sale.ledger.request_drop(id, now, "eve").await.unwrap();
    let table = SaleTable::Events;
    let kept = sale.ledger.drop_rows(id, table, &before).await.unwrap();
    assert_eq!(kept, Some(DroppedRows::default()));
    env.database.execute("DELETE FROM sinks").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let dropped = drop_once(&*sale.ledger, id, now, "cli", folder.path()).await;
    assert!(matches!(dropped.unwrap(), Some(Dropped::Done { .. })));
    assert_eq!(
        exported(&files(folder.path()), "events").len(),
        before.len()
    );
    assert_eq!(rows().await, []);
    forget(env).await;
}

/// Events of another item, which happened so many days from now.
fn foreign(backend: Backend, days: i64) -> String {
    match backend {
        Backend::Postgres => format!(
            "INSERT INTO events (at, item, kind, orders, data) \
             SELECT now() + {days} * interval '1 day', 'other', 'order.held', '', '{{}}' FROM generate_series(1, 3000)"
        ),
        Backend::Sqlite => format!(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 3000) \
             INSERT INTO events (at, item, kind, orders, data) \
             SELECT unixepoch() * 1000 + {days} * 86400000, 'other', 'order.held', x'', '{{}}' FROM n"
        ),
    }
}

/// A shop has millions of events, and a drop reads those of all items to find its own.
#[tested(on_both_databases(crate::env::run))]
async fn a_drop_reads_the_events_of_the_time_of_its_sale(env: &Arc<TestEnv>) {
    env.record().await;
    let (database, backend) = (&env.database, env.database.backend);
    database.execute(&foreign(backend, -3)).await.unwrap();
    let sale = archived(env).await;
    let id = &sale.item.id;
    database.execute(&foreign(backend, 3)).await.unwrap();
    let page = async |after| {
        let page = sale.ledger.export_page(id, SaleTable::Events, after, 1000);
        page.await.unwrap()
    };
    let [hours, days] = match backend {
        Backend::Postgres => ["interval '2 hours'", "interval '10 days'"],
        Backend::Sqlite => ["7200000", "864000000"],
    };
    let old = format!("UPDATE events SET at = at - {hours} WHERE item = '{id}'");
    let all = database.execute(&old).await.unwrap();
    assert!(all > 0, "the archive is an event");
    // Transactions of other tests hide the newest events for a moment.
    eventually("the old events", async || {
        page(None).await.rows.len() as u64 == all
    })
    .await;
    let (mut read, mut pages) = (page(None).await, 1);
    while let Some(next) = read.next {
        (read, pages) = (page(Some(next)).await, pages + 1);
    }
    assert!(pages <= 2, "all events would be seven pages: {pages}");
    let old = format!(
        "UPDATE items SET created_at = created_at - {days}, archived_at = archived_at - {days} WHERE id = '{id}'"
    );
    assert_eq!(database.execute(&old).await.unwrap(), 1);
    let none = page(None).await;
    assert_eq!(
        (none.rows, none.next),
        (vec![], None),
        "its events are gone"
    );
    forget(env).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn money_that_is_owed_keeps_its_order(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = archived(env).await;
    let id = &sale.item.id;
    // A payment that comes after the archive.
    let late = sale.order_id(&buyer(7), "key");
    sale.step(late, OrderState::RefundDue).await;
    for _ in 0..2 {
        let dropped = dropped(&sale, "cli").await;
        assert_eq!(dropped, Dropped::Waits(1));
        assert_eq!(sale.state(late).await, Some(OrderState::RefundDue));
    }
    let due = sale.ledger.refunds_due_by_item().await.unwrap();
    assert_eq!(due, [(id.clone(), 1)]);
    sale.step(late, OrderState::Refunded).await;
    let dropped = dropped(&sale, "cli").await;
    assert_eq!(dropped, done(21));
    assert_eq!(sale.state(late).await, None);
    forget(env).await;
}

#[tested(on_both_databases(crate::env::run))]
async fn a_failed_refund_keeps_its_order(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = archived(env).await;
    let id = &sale.item.id;
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
        let dropped = dropped(&sale, "cli").await;
        assert_eq!(dropped, Dropped::Waits(1));
    }
    let due = ledger.failed_refunds_by_item().await.unwrap();
    assert_eq!(due, [(id.clone(), 1)]);
    let due = ledger.list_payments_due(None, 10).await.unwrap().rows;
    assert!(ledger.note_refund_done(due[0].id, "eve").await.unwrap());
    let dropped = dropped(&sale, "cli").await;
    assert_eq!(dropped, done(21));
    // The refund stays with its payment, so a late report of it is a repeat.
    let late = ledger.note_refund(&report).await.unwrap();
    assert!(
        matches!(late, NotedRefund::Of { is_due: false, .. }),
        "{late:?}"
    );
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

#[tested(on_both_databases(crate::env::run))]
async fn a_refund_that_is_on_its_way_keeps_its_order(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = archived(env).await;
    let (ledger, late) = (&sale.ledger, sale.order_id(&buyer(7), "key"));
    let payment = refunded(&sale, late).await;
    for (state, expected) in [
        (RefundState::Pending, Dropped::Waits(1)),
        (RefundState::Succeeded, done(21)),
    ] {
        let report = report(&sale, &payment, state);
        ledger.note_refund(&report).await.unwrap();
        let dropped = dropped(&sale, "cli").await;
        assert_eq!(dropped, expected, "{state:?}");
    }
    forget(env).await;
}

/// A payment that was refused first and accepted then has paid its order, and one that nothing took
/// is due: both whether the order still exists or not.
#[tested(on_both_databases(crate::env::run))]
async fn a_drop_makes_no_payment_due_and_leaves_those_that_are(env: &Arc<TestEnv>) {
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
    let dropped = dropped(&sale, "cli").await;
    assert_eq!(dropped, done(21));
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
#[tested(on_both_databases(crate::env::run))]
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
