//! What no segment shows: that the rows do not make up the stock, or that the orders do not make up the rows. Told once, and shown until it is over.

use std::{sync::Arc, time::Duration};

use reconciler::ReconcilerSettings;
use serde_json::{Value, json};

use crate::{
    metrics,
    shop::{Sale, Shop, eventually, on_both, quick},
};

on_both!(
    units_that_nobody_has_are_shown_and_told_once,
    orders_that_do_not_make_up_their_row_are_shown_and_told_once
);

/// Many looks.
const A_WHILE: Duration = Duration::from_millis(400);

async fn shows(sale: &Sale, units: f64) {
    let shown =
        async || metrics::gauge("stockade_drift_units", sale.item.id.as_str()) == Some(units);
    eventually(&format!("showing {units}"), shown).await;
    tokio::time::sleep(A_WHILE).await;
    assert!(shown().await, "it stands, and goes on being shown");
}

/// What was found, the earliest first.
async fn told(sale: &Sale, action: &str) -> Vec<Value> {
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

async fn units_that_nobody_has_are_shown_and_told_once(shop: &Arc<Shop>) {
    metrics::keep();
    shop.record().await;
    shop.reconcile(quick()).await;
    let sale = shop.sell(40, 2).await;
    sale.hold_many(0..4).await;
    let claim = async |units: i64| {
        shop.sql_on_both(&format!(
            "UPDATE items SET stock = stock + {units} WHERE id = '{}'",
            sale.item.id
        ))
        .await
    };
    shows(&sale, 0.0).await;
    claim(2).await;
    shows(&sale, 2.0).await;
    claim(3).await;
    shows(&sale, 5.0).await;
    claim(-6).await;
    shows(&sale, 1.0).await;
    claim(1).await;
    shows(&sale, 0.0).await;
    let found = [2, 5, -1].map(|units| json!({ "unaccounted": units }));
    assert_eq!(
        told(&sale, "unaccounted").await,
        found,
        "once each, and not that it is over"
    );
    assert!(
        sale.journal("drift").await.is_empty() && sale.journal("mend").await.is_empty(),
        "no segment is wrong"
    );
}

async fn orders_that_do_not_make_up_their_row_are_shown_and_told_once(shop: &Arc<Shop>) {
    metrics::keep();
    shop.record().await;
    shop.reconcile(ReconcilerSettings {
        audit_every: Duration::from_millis(50),
        ..quick()
    })
    .await;
    let sale = shop.sell(40, 2).await;
    let orders = sale.hold_many(0..2).await;
    let quantity = sale.recorded(orders[0]).await.quantity;
    let becomes = async |units: u32| {
        let of_the_first = format!("WHERE item = '{}' AND buyer = 'buyer-0'", sale.item.id);
        shop.sql_on_both(&format!(
            "UPDATE orders SET quantity = {units} {of_the_first}"
        ))
        .await;
    };
    shows(&sale, 0.0).await;
    becomes(4).await;
    shows(&sale, 3.0).await;
    becomes(6).await;
    shows(&sale, 5.0).await;
    becomes(quantity.get()).await;
    shows(&sale, 0.0).await;
    let found = [3, 5].map(|units| json!({ "miscounted": units, "oversold": 0 }));
    assert_eq!(
        told(&sale, "miscounted").await,
        found,
        "once each, and not that it is over"
    );
}
