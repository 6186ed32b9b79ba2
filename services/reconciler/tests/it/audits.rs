//! Audits read the orders of an item only when something of it has changed, or at long intervals.

use std::{sync::Arc, time::Duration};

use audit::AuditReport;
use domain::OrderState;
use reconciler::ReconcilerSettings;
use testkit::{Sale, TestEnv, eventually, on_both_databases, shared_lock, tested};

use crate::{env::quick, metrics, unresponsive::UnresponsiveLedger};

fn auditing(full_audit_interval: Duration) -> ReconcilerSettings {
    ReconcilerSettings {
        audit_interval: Duration::from_millis(20),
        full_audit_interval,
        ..quick()
    }
}

const DAY: Duration = Duration::from_secs(86_400);

/// Waits until the last good audit of the item is one of its rows as they are.
async fn is_audited(sale: &Sale) -> ledger::GoodAudit {
    let mut found = None;
    eventually("a good audit of the rows as they are", async || {
        let rows = sale.ledger.segments(&sale.item.id).await.unwrap();
        let good = sale.ledger.good_audit(&sale.item.id).await.unwrap();
        found = good.filter(|good| good.revision == audit::revision(&rows));
        found.is_some()
    })
    .await;
    found.unwrap()
}

#[tested(on_both_databases(crate::env::run))]
async fn an_item_is_audited_again_after_a_change_only(env: &Arc<TestEnv>) {
    env.record().await;
    let first = env.reconciler(auditing(DAY), shared_lock().await).await;
    let sale = env.sell(40, 2).await;
    let orders = sale.hold_many(0..3).await;
    sale.comes_to_rest().await;
    let before = is_audited(&sale).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(is_audited(&sale).await, before, "it was not read again");
    first.stop().await;
    // Another process goes on from there.
    env.reconcile(auditing(DAY)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(is_audited(&sale).await, before);
    sale.step(orders[0], OrderState::Confirmed).await;
    let after = is_audited(&sale).await;
    assert!(after.at > before.at && after.revision != before.revision);
}

#[tested(on_both_databases(crate::env::run))]
async fn orders_that_were_changed_behind_the_ledger_are_found_by_the_next_full_audit(
    env: &Arc<TestEnv>,
) {
    metrics::supervise();
    env.record().await;
    let sale = env.sell(40, 2).await;
    sale.hold_many(0..2).await;
    sale.comes_to_rest().await;
    let daily = env.reconciler(auditing(DAY), shared_lock().await).await;
    is_audited(&sale).await;
    let becomes = async |units: u32| change_behind_the_ledger(env, &sale, units).await;
    becomes(4).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(
        sale.journal("miscounted").await.is_empty(),
        "no row changed"
    );
    daily.stop().await;
    env.reconcile(auditing(Duration::from_millis(100))).await;
    let has_drift = || metrics::gauge("stockade_drift_units", sale.item.id.as_str()) != Some(0.0);
    // The audit writes the journal before it notes what it has found. Mended between the two, the
    // orders would look good until the note comes.
    eventually("the full audit", async || {
        let found = sale.journal("miscounted").await.len() == 1;
        found && has_drift() && !brief(&sale).await.ok
    })
    .await;
    becomes(1).await;
    eventually("the drift to end, and a good audit", async || {
        !has_drift() && brief(&sale).await.ok
    })
    .await;
}

/// Changes the units of an order, and no row of a segment.
async fn change_behind_the_ledger(env: &TestEnv, sale: &Sale, units: u32) {
    let the_first = format!("item = '{}' AND buyer = 'buyer-0'", sale.item.id);
    env.sql(&format!(
        "UPDATE orders SET quantity = {units} WHERE {the_first}"
    ))
    .await;
}

/// The audit that reads no orders.
async fn brief(sale: &Sale) -> AuditReport {
    let audited = audit::audit(&sale.stock, &*sale.ledger, &sale.item.id).await;
    audited.unwrap().unwrap()
}

#[tested(on_both_databases(crate::env::run))]
async fn what_a_full_audit_has_found_is_told_by_one_that_reads_no_orders(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell(40, 2).await;
    let orders = sale.hold_many(0..3).await;
    sale.comes_to_rest().await;
    let checked = brief(&sale).await.orders_checked;
    assert_eq!((checked.at, checked.current), (None, false), "no full one");
    let walked = async || sale.noted_report().await;
    let good = walked().await;
    assert!(good.ok && good.orders_checked.current, "{good:?}");
    assert_eq!(brief(&sale).await, good, "it says the same");
    sale.step(orders[0], OrderState::Confirmed).await;
    let moved = brief(&sale).await;
    assert!(moved.ok && !moved.orders_checked.current, "{moved:?}");
    assert_eq!(moved.orders_checked.at, good.orders_checked.at);
    assert_eq!((moved.held, moved.confirmed), (2, 1), "as they are now");
    // What bypasses the ledger's code is found by a full one alone, and then told by both.
    change_behind_the_ledger(env, &sale, 4).await;
    assert!(brief(&sale).await.ok);
    let found = walked().await;
    assert!(!found.ok && found.miscounted == 3, "{found:?}");
    let told = brief(&sale).await;
    assert!(!told.ok && !told.orders_checked.current, "{told:?}");
    assert_eq!(told.orders_checked, found.orders_checked);
    assert_eq!(
        (told.miscounted, told.drift, told.oversold),
        (found.miscounted, found.drift, found.oversold)
    );
    change_behind_the_ledger(env, &sale, 1).await;
    assert!(!brief(&sale).await.ok, "until a full one finds it mended");
    // One that began in the millisecond in which the fault was found does not take it back.
    eventually("a full audit that began later", async || {
        assert!(walked().await.ok);
        brief(&sale).await.orders_checked.current
    })
    .await;
}

#[tested(on_both_databases(crate::env::run))]
async fn an_audit_without_an_end_does_not_delay_others(env: &Arc<TestEnv>) {
    env.record().await;
    let long = env.sell(40, 1).await;
    long.hold_many(0..3).await;
    let sale = env.sell(40, 1).await;
    let orders = sale.hold_many(0..9).await;
    long.comes_to_rest().await;
    let ledger = UnresponsiveLedger::with_an_endless_walk(env.ledger().await, long.item.id.clone());
    env.reconcile_on(Arc::clone(&ledger) as _, auditing(DAY))
        .await;
    eventually("an audit that does not end", async || {
        ledger.endless_walks() > 0
    })
    .await;
    for order in &orders[..3] {
        sale.step(*order, OrderState::Confirmed).await;
        is_audited(&sale).await;
    }
    assert_eq!(ledger.endless_walks(), 1, "it is one audit all the while");
    assert_eq!(long.ledger.good_audit(&long.item.id).await.unwrap(), None);
}

#[tested(on_both_databases(crate::env::run))]
async fn an_item_is_audited_in_pieces_while_it_sells(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell(200, 2).await;
    // With a piece for each order, the walks of a busy machine would take most of the test's time.
    env.reconcile(ReconcilerSettings {
        audit_piece: 8,
        ..auditing(Duration::from_millis(50))
    })
    .await;
    for buyers in [0..30, 30..60, 60..90] {
        let orders = sale.hold_many(buyers).await;
        for order in &orders[..10] {
            sale.step(*order, OrderState::Confirmed).await;
        }
    }
    sale.comes_to_rest().await;
    is_audited(&sale).await;
    assert!(sale.journal("miscounted").await.is_empty());
}

/// Settings for which every item is large.
fn comparing_changes() -> ReconcilerSettings {
    ReconcilerSettings {
        audit_walked: 0,
        ..auditing(DAY)
    }
}

/// Waits until an audit that reads no orders says that all of them were compared with the rows.
async fn is_compared(sale: &Sale) {
    eventually("an audit of the rows as they are", async || {
        brief(sale).await.orders_checked.current
    })
    .await;
}

#[tested(on_both_databases(crate::env::run))]
async fn of_a_large_item_only_what_has_changed_is_read(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell(400, 2).await;
    let orders = sale.hold_many(0..200).await;
    sale.comes_to_rest().await;
    env.reconcile(comparing_changes()).await;
    is_compared(&sale).await;
    let good = async || sale.ledger.good_audit(&sale.item.id).await.unwrap();
    let (mut changed, mut is_without_a_walk) = (0_usize, false);
    // Transactions of other tests on the same server can be open for so long that there are too
    // many events behind them, so one change of five must do. Each waits for twenty times as long
    // as the audit before it has taken.
    while changed < 5 && !is_without_a_walk {
        let before = good().await;
        sale.step(orders[changed], OrderState::Confirmed).await;
        changed += 1;
        is_compared(&sale).await;
        is_without_a_walk = good().await == before;
    }
    assert!(is_without_a_walk);
    assert!(sale.journal("miscounted").await.is_empty());
    assert_eq!(brief(&sale).await.confirmed, changed as u64);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_row_that_its_orders_have_not_changed_is_found_by_a_walk(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell(40, 1).await;
    sale.hold_many(0..20).await;
    sale.comes_to_rest().await;
    env.reconcile(comparing_changes()).await;
    is_compared(&sale).await;
    let confirm = async |units: i64| {
        env.sql(&format!(
            "UPDATE segments SET held = held - {units}, confirmed = confirmed + {units}, \
             version = version + 1 WHERE item = '{}'",
            sale.item.id
        ))
        .await;
    };
    confirm(1).await;
    eventually("the walk that finds it", async || {
        !sale.journal("miscounted").await.is_empty()
    })
    .await;
    assert!(!brief(&sale).await.orders_checked.current);
    confirm(-1).await;
    is_compared(&sale).await;
}
