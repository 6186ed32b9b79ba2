//! Gauges of items and of Redis that operators and alerts read.

use std::{sync::Arc, time::Duration};

use domain::{OrderState, PaymentId};
use ledger::{RefundReport, RefundState, Transition};
use reconciler::ReconcilerSettings;
use testkit::{Sale, TestEnv, eventually, on_both_databases, tested};

use crate::{env::quick, metrics};

fn units(sale: &Sale, state: &str) -> Option<f64> {
    let labels = format!("item=\"{}\",state=\"{state}\"", sale.item.id);
    metrics::labelled("stockade_item_units", &labels)
}

#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn the_units_of_an_item_are_shown_by_state(env: &Arc<TestEnv>) {
    metrics::supervise();
    env.record().await;
    env.reconcile(quick()).await;
    let sale = env.sell(40, 2).await;
    let mut expected = [
        ("allocated", 40.0),
        ("available", 40.0),
        ("in_flight", 0.0),
        ("held", 0.0),
        ("confirmed", 0.0),
        ("returning", 0.0),
    ];
    let shows = async |expected: [(&str, f64); 6]| {
        eventually(&format!("showing {expected:?}"), async || {
            let shown = |(state, wanted): (&str, f64)| units(&sale, state) == Some(wanted);
            expected.into_iter().all(shown)
        })
        .await;
    };
    shows(expected).await;
    let order = sale.hold_many(0..1).await[0];
    expected[1].1 -= 1.0;
    expected[3].1 += 1.0;
    shows(expected).await;
    sale.step(order, OrderState::Confirmed).await;
    expected[3].1 -= 1.0;
    expected[4].1 += 1.0;
    shows(expected).await;
}

/// An item on sale that is audited all the time.
async fn audited(env: &Arc<TestEnv>) -> Arc<Sale> {
    metrics::supervise();
    env.record().await;
    env.reconcile(ReconcilerSettings {
        audit_interval: Duration::from_millis(50),
        ..quick()
    })
    .await;
    env.sell(40, 2).await
}

/// Waits until the gauge of the item has this value.
async fn shows(sale: &Sale, gauge: &str, value: f64) {
    eventually(&format!("showing {value}"), async || {
        metrics::gauge(gauge, sale.item.id.as_str()) == Some(value)
    })
    .await;
}

#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn orders_whose_money_must_be_returned_are_shown(env: &Arc<TestEnv>) {
    let sale = audited(env).await;
    let shows = async |orders| shows(&sale, "stockade_refund_due_orders", orders).await;
    let order = sale.hold_many(0..1).await[0];
    shows(0.0).await;
    sale.step(order, OrderState::Expired).await;
    sale.step(order, OrderState::RefundDue).await;
    shows(1.0).await;
    sale.step(order, OrderState::Refunded).await;
    shows(0.0).await;
}

#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn payments_whose_refund_has_failed_are_shown(env: &Arc<TestEnv>) {
    let sale = audited(env).await;
    let shows = async |payments| shows(&sale, "stockade_failed_refunds", payments).await;
    let order = sale.hold_many(0..1).await[0];
    shows(0.0).await;
    let payment = PaymentId::new(format!("pi-{}", sale.item.id)).unwrap();
    let paid = [Transition {
        order: sale.ledger.order(order).await.unwrap().unwrap(),
        to: OrderState::Confirmed,
        payment: Some(payment.clone()),
    }];
    assert!(sale.ledger.transition(&paid).await.unwrap()[0].is_some());
    sale.step(order, OrderState::Refunded).await;
    let report = async |id: &str, state| {
        let report = RefundReport {
            id: format!("{id}-{}", sale.item.id),
            payment: payment.clone(),
            payer: None,
            state,
            amount: 5,
            currency: None,
            created_at: None,
            at: None,
        };
        sale.ledger.note_refund(&report).await.unwrap()
    };
    report("re_1", RefundState::Failed).await;
    shows(1.0).await;
    report("re_2", RefundState::Succeeded).await;
    shows(0.0).await;
}

#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn the_memory_of_redis_is_shown(env: &Arc<TestEnv>) {
    metrics::supervise();
    env.redis::<()>(redis::cmd("CONFIG").arg(&["SET", "maxmemory", "100mb"]))
        .await;
    let sale = env.sell(40, 2).await;
    env.record().await;
    env.reconcile(quick()).await;
    let server = sale.stock.memory().await.unwrap()[0].server.clone();
    let labels = format!("server=\"{server}\"");
    eventually("the bound of the server", async || {
        let max = metrics::labelled("stockade_redis_memory_max_bytes", &labels);
        let used = metrics::labelled("stockade_redis_memory_used_bytes", &labels);
        max == Some(104_857_600.0) && used.is_some_and(|used| used > 100_000.0)
    })
    .await;
}
