//! Violations that no single segment shows: rows that do not add up to the stock, or orders that do
//! not add up to the rows. Each is reported once, and stays in the gauge until it ends.

use std::{sync::Arc, time::Duration};

use reconciler::ReconcilerSettings;
use serde_json::{Value, json};
use testkit::{Sale, TestEnv, eventually, on_both_databases, tested};

use crate::{env::quick, metrics, unresponsive::UnresponsiveLedger};

async fn shows(sale: &Sale, ledger: &UnresponsiveLedger, units: f64) {
    let shown =
        async || metrics::gauge("stockade_drift_units", sale.item.id.as_str()) == Some(units);
    eventually(&format!("showing {units}"), shown).await;
    ledger.more_rounds(10).await;
    assert!(
        shown().await,
        "the violation persists and stays in the gauge"
    );
}

/// The findings in the journal, oldest first.
async fn reported(sale: &Sale, action: &str) -> Vec<Value> {
    let mut entries = sale.journal(action).await;
    entries.reverse();
    assert!(
        entries
            .iter()
            .all(|entry| entry.entry.actor == "reconciler"),
        "{entries:?}"
    );
    entries.into_iter().map(|entry| entry.entry.after).collect()
}

#[tested(on_both_databases(crate::env::run))]
async fn unaccounted_units_are_shown_and_reported_once(env: &Arc<TestEnv>) {
    metrics::supervise();
    env.record().await;
    let ledger = UnresponsiveLedger::that_counts(env.ledger().await);
    env.reconcile_on(Arc::clone(&ledger) as _, quick()).await;
    let sale = env.sell(40, 2).await;
    sale.hold_many(0..4).await;
    let claim = async |units: i64| {
        env.sql(&format!(
            "UPDATE items SET stock = stock + {units} WHERE id = '{}'",
            sale.item.id
        ))
        .await
    };
    shows(&sale, &ledger, 0.0).await;
    claim(2).await;
    shows(&sale, &ledger, 2.0).await;
    claim(3).await;
    shows(&sale, &ledger, 5.0).await;
    claim(-6).await;
    shows(&sale, &ledger, 1.0).await;
    claim(1).await;
    shows(&sale, &ledger, 0.0).await;
    let found = [2, 5, -1].map(|units| json!({ "unaccounted": units }));
    assert_eq!(
        reported(&sale, "unaccounted").await,
        found,
        "one entry each, and none for the end of the violation"
    );
    assert!(
        sale.journal("drift").await.is_empty() && sale.journal("repair").await.is_empty(),
        "no segment has an anomaly"
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn orders_that_do_not_add_up_to_their_row_are_shown_and_reported_once(env: &Arc<TestEnv>) {
    metrics::supervise();
    env.record().await;
    let settings = ReconcilerSettings {
        audit_interval: Duration::from_millis(50),
        full_audit_interval: Duration::from_millis(50),
        ..quick()
    };
    let ledger = UnresponsiveLedger::that_counts(env.ledger().await);
    env.reconcile_on(Arc::clone(&ledger) as _, settings).await;
    let sale = env.sell(40, 2).await;
    let orders = sale.hold_many(0..2).await;
    let quantity = sale.recorded(orders[0]).await.quantity;
    let becomes = async |units: u32| {
        let of_the_first = format!("WHERE item = '{}' AND buyer = 'buyer-0'", sale.item.id);
        env.sql(&format!(
            "UPDATE orders SET quantity = {units} {of_the_first}"
        ))
        .await;
    };
    shows(&sale, &ledger, 0.0).await;
    becomes(4).await;
    shows(&sale, &ledger, 3.0).await;
    becomes(6).await;
    shows(&sale, &ledger, 5.0).await;
    becomes(quantity.get()).await;
    shows(&sale, &ledger, 0.0).await;
    let found = [3, 5].map(|units| json!({ "miscounted": units, "oversold": 0 }));
    assert_eq!(
        reported(&sale, "miscounted").await,
        found,
        "one entry each, and none for the end of the violation"
    );
}
