//! Holds that are over.

use std::{sync::Arc, time::Duration};

use domain::{Item, OrderState};
use futures::future::join_all;
use jiff::Timestamp;
use reconciler::ReconcilerSettings;

use crate::{
    deaf::Deaf,
    shop::{Sale, Shop, buyer, eventually, is_held, on_both, quick},
};

on_both!(
    a_hold_ends_within_a_second_of_its_time_and_its_unit_can_be_bought_again,
    several_who_end_holds_end_each_once,
    what_was_paid_or_cancelled_does_not_expire,
    a_ledger_that_does_not_answer_is_given_up_and_asked_again,
    a_hold_that_the_ledger_refuses_to_end_keeps_no_other,
);

fn short_holds(item: Item) -> Item {
    Item {
        hold_seconds: 1,
        limit_per_buyer: Some(domain::Quantity::ONE),
        ..item
    }
}

async fn a_hold_ends_within_a_second_of_its_time_and_its_unit_can_be_bought_again(
    shop: &Arc<Shop>,
) {
    shop.record().await;
    shop.reconcile(quick()).await;
    let sale = shop.sell_with(200, 4, short_holds).await;
    let orders = sale.hold_many(0..200).await;
    let mut over = Timestamp::MIN;
    for order in &orders {
        over = over.max(sale.recorded(*order).await.expires_at);
    }
    eventually("all units coming back", async || {
        sale.available().await.iter().sum::<u64>() == 200
    })
    .await;
    let late = Timestamp::now().duration_since(over);
    eprintln!(
        "all back {} ms after the last hold was over",
        late.as_millis()
    );
    assert!(late.as_millis() < 1000, "{late:?}");
    assert!(late.as_millis() >= 0, "not before their time");
    // The counts are back too: everybody may buy again.
    let again = join_all((0..200).map(|n| {
        let sale = Arc::clone(&sale);
        async move { sale.order(&buyer(n), "again", 1).await }
    }));
    assert!(again.await.iter().all(is_held));
    eventually("the second holds ending", async || {
        sale.orders().await.get("expired") == Some(&400)
    })
    .await;
}

/// The version of an order that has only been recorded. Reading it from one of them could be too late: the holds are short.
const RECORDED: u64 = 1;

async fn several_who_end_holds_end_each_once(shop: &Arc<Shop>) {
    shop.record().await;
    for _ in 0..3 {
        shop.reconcile(quick()).await;
    }
    let sale = shop.sell_with(600, 3, short_holds).await;
    let orders = sale.hold_many(0..600).await;
    eventually("all holds ending", async || {
        sale.orders().await.get("expired") == Some(&600)
    })
    .await;
    sale.comes_to_rest().await;
    for order in orders {
        let order = sale.recorded(order).await;
        assert_eq!(
            (order.state, order.version),
            (OrderState::Expired, RECORDED + 1),
            "one step, and no other"
        );
    }
    assert_eq!(sale.available().await.iter().sum::<u64>(), 600);
    assert!(sale.journal("drift").await.is_empty());
}

async fn what_was_paid_or_cancelled_does_not_expire(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop.sell_with(30, 3, short_holds).await;
    let orders = sale.hold_many(0..30).await;
    for (n, order) in orders.iter().enumerate() {
        match n % 3 {
            0 => drop(sale.step(*order, OrderState::Confirmed).await),
            1 => drop(sale.step(*order, OrderState::Cancelled).await),
            _ => {}
        }
    }
    shop.reconcile(quick()).await;
    eventually("the others' holds ending", async || {
        sale.orders().await.get("expired") == Some(&10)
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    sale.comes_to_rest().await;
    assert_eq!(sum_of(&sale).await, [20, 0, 10]);
}

async fn a_ledger_that_does_not_answer_is_given_up_and_asked_again(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop.sell_with(20, 2, short_holds).await;
    sale.hold_many(0..20).await;
    let ledger = Arc::new(Deaf::new(shop.ledger().await, 2, 2));
    let settings = ReconcilerSettings {
        ledger_within: Duration::from_millis(300),
        ..quick()
    };
    shop.reconcile_on(Arc::clone(&ledger) as _, settings).await;
    eventually("all holds ending", async || {
        sale.orders().await.get("expired") == Some(&20)
    })
    .await;
    assert_eq!(
        ledger.left(),
        [0, 0],
        "it was deaf to each call as often as it should be"
    );
}

async fn a_hold_that_the_ledger_refuses_to_end_keeps_no_other(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop.sell_with(20, 2, short_holds).await;
    let orders = sale.hold_many(0..20).await;
    shop.sql(
        "ALTER TABLE orders ADD CONSTRAINT not_this_one CHECK (buyer <> 'buyer-3' OR state <> 'expired')",
        "CREATE TRIGGER not_this_one BEFORE UPDATE ON orders WHEN new.buyer = 'buyer-3' AND new.state = 'expired' \
         BEGIN SELECT raise(ABORT, 'not this one'); END",
    )
    .await;
    shop.reconcile(quick()).await;
    eventually("the others' holds ending", async || {
        sale.orders().await.get("expired") == Some(&19)
    })
    .await;
    assert_eq!(sale.state(orders[3]).await, Some(OrderState::Held));
    shop.sql(
        "ALTER TABLE orders DROP CONSTRAINT not_this_one",
        "DROP TRIGGER not_this_one",
    )
    .await;
    eventually("the last one ending", async || {
        sale.orders().await.get("expired") == Some(&20)
    })
    .await;
}

async fn sum_of(sale: &Sale) -> [u64; 3] {
    let report = sale.report().await;
    [report.available, report.held, report.confirmed]
}
