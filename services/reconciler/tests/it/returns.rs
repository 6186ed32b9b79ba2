//! Ended orders whose return was interrupted.

use std::sync::Arc;

use domain::{Item, OrderState, Quantity};
use reconciler::ReconcilerSettings;
use testkit::{TestEnv, buyer, eventually, is_held, on_both_databases, tested};

use crate::env::quick;

fn one_each(item: Item) -> Item {
    Item {
        limit_per_buyer: Some(Quantity::ONE),
        ..item
    }
}

/// The orders ended in the ledger, and then the process died before it released the units. Many of
/// the buyers have another home segment.
#[tested(on_both_databases(crate::env::run))]
async fn interrupted_returns_are_completed(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell_with(12, 4, one_each).await;
    let orders = sale.hold_many(0..12).await;
    assert_eq!(
        sale.available().await,
        [0; 4],
        "some orders took their unit off home"
    );
    for order in &orders[..6] {
        sale.step(*order, OrderState::Cancelled).await;
    }
    assert_eq!(sale.report().await.returning, 6);
    env.reconcile(quick()).await;
    sale.comes_to_rest().await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), 6);
    for n in 0..12 {
        assert_eq!(
            is_held(&sale.order(&buyer(n), "again", 1).await),
            n < 6,
            "each count was released with its unit, and no other"
        );
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn a_return_that_was_made_and_not_recorded_is_not_made_twice(env: &Arc<TestEnv>) {
    let sale = env.sell_with(6, 3, one_each).await;
    for n in 0..6 {
        assert!(is_held(&sale.order(&buyer(n), "key", 1).await));
    }
    sale.record_once().await;
    for n in 0..6 {
        let order = sale
            .step(sale.order_id(&buyer(n), "key"), OrderState::Cancelled)
            .await;
        assert_eq!(sale.release(&order).await.unwrap(), 1);
        assert_eq!(
            sale.release(&order).await.unwrap(),
            0,
            "a repeat changes nothing"
        );
    }
    env.reconcile(quick()).await;
    env.reconcile(quick()).await;
    tokio::time::sleep(quick().return_delay * 5).await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), 6);
    assert_eq!(
        sale.report().await.returning,
        6,
        "the release is not recorded"
    );
    env.record().await;
    sale.comes_to_rest().await;
    assert!(sale.journal("drift").await.is_empty());
}

#[tested(on_both_databases(crate::env::run))]
async fn several_reconcilers_make_each_return_once(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell(300, 3).await;
    let orders = sale.hold_many(0..300).await;
    for _ in 0..3 {
        env.reconcile(ReconcilerSettings {
            return_delay: std::time::Duration::from_millis(1),
            ..quick()
        })
        .await;
    }
    for order in orders {
        sale.step(order, OrderState::Cancelled).await;
    }
    sale.comes_to_rest().await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), 300);
    assert!(sale.journal("drift").await.is_empty());
}

#[tested(on_both_databases(crate::env::run))]
async fn a_refunded_order_returns_its_units(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell_with(4, 2, one_each).await;
    let orders = sale.hold_many(0..4).await;
    for order in orders {
        sale.step(order, OrderState::Confirmed).await;
        sale.step(order, OrderState::Refunded).await;
    }
    env.reconcile(quick()).await;
    sale.comes_to_rest().await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), 4);
    assert!(is_held(&sale.order(&buyer(0), "again", 1).await));
}

/// More than one search finds, and older than those of other items.
#[tested(on_both_databases(crate::env::run))]
async fn returns_to_an_item_that_takes_none_keep_no_other_from_its_own(env: &Arc<TestEnv>) {
    env.record().await;
    let (broken, other) = (env.sell(1, 1).await, env.sell(6, 2).await);
    let orders = other.hold_many(0..6).await;
    for order in orders {
        other.step(order, OrderState::Cancelled).await;
    }
    let item = &broken.item.id;
    env.sql_of(
        &format!(
            "INSERT INTO returns (id, item, segment, buyer, quantity, since) \
             SELECT gen_random_uuid(), '{item}', 0, 'ann', 1, now() - interval '1 hour' \
             FROM generate_series(1, 5001)"
        ),
        &format!(
            "INSERT INTO returns (id, item, segment, buyer, quantity, since) \
             WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 5001) \
             SELECT randomblob(16), '{item}', 0, 'ann', 1, 0 FROM numbers"
        ),
    )
    .await;
    let (decisions, away) = (broken.key("decisions", 0), broken.key("away", 0));
    let renames = |from: &str, to: &str| redis::cmd("RENAME").arg(from).arg(to).to_owned();
    broken.redis::<()>(&renames(&decisions, &away)).await;
    broken
        .redis::<()>(redis::cmd("SET").arg(&decisions).arg("no hash"))
        .await;
    env.reconcile(quick()).await;
    eventually("the units of the other item", async || {
        other.available().await.iter().sum::<u64>() == 6
    })
    .await;
    broken.redis::<()>(&renames(&away, &decisions)).await;
    env.sql("DELETE FROM returns WHERE buyer = 'ann'").await;
}
