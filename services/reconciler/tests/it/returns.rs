//! Orders that have ended and whose units somebody left on their way.

use std::sync::Arc;

use domain::{Item, OrderState, Quantity};
use reconciler::ReconcilerSettings;

use crate::shop::{Shop, buyer, is_held, on_both, quick};

on_both!(
    units_that_nobody_gave_back_come_home,
    a_return_that_was_made_and_not_recorded_is_not_made_twice,
    several_who_repeat_returns_return_each_once,
    a_refunded_order_gives_its_units_back,
);

fn one_each(item: Item) -> Item {
    Item {
        limit_per_buyer: Some(Quantity::ONE),
        ..item
    }
}

/// The ledger has it, and then whoever ended the orders died. Many of the buyers are at home elsewhere.
async fn units_that_nobody_gave_back_come_home(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop.sell_with(12, 4, one_each).await;
    let orders = sale.hold_many(0..12).await;
    assert_eq!(
        sale.available().await,
        [0; 4],
        "so some took their unit away from home"
    );
    for order in &orders[..6] {
        sale.step(*order, OrderState::Cancelled).await;
    }
    assert_eq!(sale.report().await.returning, 6);
    shop.reconcile(quick()).await;
    sale.comes_to_rest().await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), 6);
    for n in 0..12 {
        assert_eq!(
            is_held(&sale.order(&buyer(n), "again", 1).await),
            n < 6,
            "a count came back with its unit, and no other"
        );
    }
}

async fn a_return_that_was_made_and_not_recorded_is_not_made_twice(shop: &Arc<Shop>) {
    let sale = shop.sell_with(6, 3, one_each).await;
    for n in 0..6 {
        assert!(is_held(&sale.order(&buyer(n), "key", 1).await));
    }
    recorder::record_once(&sale.stock, &*sale.ledger, &sale.segments())
        .await
        .unwrap();
    for n in 0..6 {
        let order = sale
            .step(sale.order_id(&buyer(n), "key"), OrderState::Cancelled)
            .await;
        assert_eq!(sale.give_back(&order).await.unwrap(), 1);
        assert_eq!(
            sale.give_back(&order).await.unwrap(),
            0,
            "a repeat changes nothing"
        );
    }
    shop.reconcile(quick()).await;
    shop.reconcile(quick()).await;
    tokio::time::sleep(quick().return_after * 5).await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), 6);
    assert_eq!(sale.report().await.returning, 6, "nobody has recorded it");
    shop.record().await;
    sale.comes_to_rest().await;
    assert!(sale.journal("drift").await.is_empty());
}

async fn several_who_repeat_returns_return_each_once(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop.sell(300, 3).await;
    let orders = sale.hold_many(0..300).await;
    for _ in 0..3 {
        shop.reconcile(ReconcilerSettings {
            return_after: std::time::Duration::from_millis(1),
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

async fn a_refunded_order_gives_its_units_back(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop.sell_with(4, 2, one_each).await;
    let orders = sale.hold_many(0..4).await;
    for order in orders {
        sale.step(order, OrderState::Confirmed).await;
        sale.step(order, OrderState::Refunded).await;
    }
    shop.reconcile(quick()).await;
    sale.comes_to_rest().await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), 4);
    assert!(is_held(&sale.order(&buyer(0), "again", 1).await));
}
