//! Audits read the orders of an item only when something of it has changed, or at long intervals.

use std::{sync::Arc, time::Duration};

use domain::OrderState;
use reconciler::ReconcilerSettings;
use testkit::{Sale, TestEnv, eventually, on_both_databases, shared_lock};

use crate::{env::quick, metrics};

on_both_databases!(crate::env::run:
    an_item_is_audited_again_after_a_change_only,
    orders_that_were_changed_behind_the_ledger_are_found_by_the_next_full_audit,
);

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
    let becomes = async |units: u32| {
        let the_first = format!("item = '{}' AND buyer = 'buyer-0'", sale.item.id);
        env.sql(&format!(
            "UPDATE orders SET quantity = {units} WHERE {the_first}"
        ))
        .await;
    };
    becomes(4).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(
        sale.journal("miscounted").await.is_empty(),
        "no row changed"
    );
    daily.stop().await;
    env.reconcile(auditing(Duration::from_millis(100))).await;
    eventually("the full audit", async || {
        sale.journal("miscounted").await.len() == 1
    })
    .await;
    becomes(1).await;
    eventually("the drift to end", async || {
        metrics::gauge("stockade_drift_units", sale.item.id.as_str()) == Some(0.0)
    })
    .await;
}
