//! What is wrong with an item in words, and putting it right once.

use std::sync::Arc;

use domain::{BuyerId, ItemId, OrderState, TransferId};
use ledger::{StockChange, StockPart};
use reconciler::{Explanation, explain, reconcile_once};

use crate::shop::{Sale, Shop, buyer, is_held, lock, on_both_with_a_redis_of_its_own};

on_both_with_a_redis_of_its_own!(
    an_item_that_is_right_needs_nothing,
    everything_that_is_wrong_is_told_and_put_right_at_once,
    what_cannot_be_done_is_left_and_told,
);

async fn told(sale: &Sale) -> Explanation {
    explain(&sale.stock, &*sale.ledger, &sale.item.id).await.unwrap().unwrap()
}

async fn reconciled(sale: &Sale) -> Explanation {
    let (stock, ledger) = (Arc::clone(&sale.stock), Arc::clone(&sale.ledger));
    reconcile_once(stock, ledger, lock().await, &sale.item.id).await.unwrap().unwrap()
}

fn actions(explanation: &Explanation) -> Vec<&str> {
    explanation.steps.iter().map(|step| step.action).collect()
}

async fn an_item_that_is_right_needs_nothing(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop.sell(100, 2).await;
    sale.hold_many(0..10).await;
    sale.comes_to_rest().await;
    let told = told(&sale).await;
    assert!(told.steps.is_empty() && !told.is_pressing(), "{told:?}");
    let version = sale.ledger.item(&sale.item.id).await.unwrap().unwrap().version;
    assert!(reconciled(&sale).await.steps.is_empty());
    assert_eq!(sale.ledger.item(&sale.item.id).await.unwrap().unwrap().version, version, "nothing was touched");
    let nobodys = ItemId::new("no-such-item").unwrap();
    assert_eq!(explain(&sale.stock, &*sale.ledger, &nobodys).await.unwrap(), None);
    let none = reconcile_once(Arc::clone(&sale.stock), Arc::clone(&sale.ledger), lock().await, &nobodys).await.unwrap();
    assert_eq!(none, None);
}

async fn everything_that_is_wrong_is_told_and_put_right_at_once(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop.sell(120, 4).await;
    let orders = sale.hold_many(0..20).await;
    sale.comes_to_rest().await;
    // Units on their way home, new ones on their way in, a difference, a segment that somebody halted, and one that is gone.
    for order in &orders[..3] {
        sale.step(*order, OrderState::Cancelled).await;
    }
    let part = StockPart { transfer: TransferId::random(), segment: 1, units: 9 };
    sale.ledger.change_stock(&sale.item.id, &StockChange::TopUp(vec![part]), None, "admin").await.unwrap();
    sale.bend(1, 5).await;
    sale.stock.halt(&sale.segment(2), 1).await.unwrap();
    let _: i64 = sale.redis(redis::cmd("DEL").arg(sale.keys(3))).await;

    let wrong = told(&sale).await;
    assert_eq!(actions(&wrong), ["mend", "mend", "mend", "top_up", "return"], "{wrong:#?}");
    assert!(wrong.is_pressing());
    let [drift, halted, gone, top_up, back] = &wrong.steps[..] else { panic!("{wrong:#?}") };
    assert_eq!((drift.segment, drift.units), (Some(1), 5));
    assert!(drift.why.contains("the ledger and the entries behind its checkpoint say"), "{}", drift.why);
    assert!(drift.would.contains("halt the segment, set it to"), "{}", drift.would);
    assert_eq!(halted.segment, Some(2));
    assert!(halted.why.contains("somebody began to mend it") && halted.would.contains("higher token than 1"), "{halted:?}");
    assert!(halted.entries.iter().any(|entry| entry.ends_with("halted, token 1")), "{halted:?}");
    assert_eq!((gone.segment, &gone.why[..]), (Some(3), "the segment is not in Redis"));
    assert!(gone.would.contains("give it back the orders that the ledger has"), "{}", gone.would);
    assert_eq!((top_up.segment, top_up.units), (Some(1), 9));
    assert!(top_up.would.contains(&part.transfer.to_string()), "{}", top_up.would);
    assert_eq!(back.units, 3);
    assert_eq!(told(&sale).await, wrong, "telling changes nothing");

    let left = reconciled(&sale).await;
    assert!(!left.is_pressing(), "{left:#?}");
    sale.comes_to_rest().await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), 120 + 9 - 17);
    for n in 3..20 {
        assert!(is_held(&sale.order(&buyer(n), "key", 1).await));
    }
}

/// Walks have their time; and where nobody records, units that have left do not arrive.
async fn what_cannot_be_done_is_left_and_told(shop: &Arc<Shop>) {
    let sale = shop.sell(8, 4).await;
    let greedy = BuyerId::new("greedy").unwrap();
    assert!(!is_held(&sale.order(&greedy, "key", 5).await));
    recorder::record_once(&sale.stock, &*sale.ledger, &sale.segments()).await.unwrap();
    let walks = told(&sale).await;
    assert_eq!((actions(&walks), walks.is_pressing()), (vec!["walks"], false), "{walks:?}");

    let part = StockPart { transfer: TransferId::random(), segment: 0, units: 1 };
    sale.ledger.change_stock(&sale.item.id, &StockChange::TakeBack(vec![part]), None, "admin").await.unwrap();
    let left = reconciled(&sale).await;
    assert!(left.is_pressing() && actions(&left).contains(&"take_back"), "{left:#?}");
    assert!(left.steps[0].why.contains("1 units are to go from segment 0 to outside"), "{left:#?}");
    shop.record().await;
    let left = reconciled(&sale).await;
    assert!(!left.is_pressing(), "{left:#?}");
    assert_eq!(sale.report().await.stock, 7);
}
