//! What is wrong with an item in words, and putting it right once.

use std::{sync::Arc, time::Instant};

use domain::{BuyerId, Item, ItemId, OrderState, TransferId};
use jiff::Timestamp;
use ledger::{StockChange, StockPart};
use reconciler::{Explanation, ReconcilerSettings, explain, reconcile_once};

use crate::shop::{Sale, Shop, buyer, eventually, is_held, lock, on_both_with_a_redis_of_its_own};

on_both_with_a_redis_of_its_own!(
    an_item_that_is_right_needs_nothing,
    everything_that_is_wrong_is_told_and_put_right_at_once,
    what_cannot_be_done_is_left_and_told,
    it_is_repaired_by_hand_when_it_has_stood_and_not_before,
    a_difference_that_goes_away_is_not_repaired_by_hand,
    holds_that_are_over_are_ended_by_hand_behind_any_number_of_others,
);

async fn told(sale: &Sale) -> Explanation {
    explain(&sale.stock, &*sale.ledger, &sale.item.id)
        .await
        .unwrap()
        .unwrap()
}

async fn reconciled(sale: &Sale) -> Explanation {
    let (stock, ledger) = (Arc::clone(&sale.stock), Arc::clone(&sale.ledger));
    reconcile_once(stock, ledger, lock().await, &sale.item.id)
        .await
        .unwrap()
        .unwrap()
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
    let version = sale
        .ledger
        .item(&sale.item.id)
        .await
        .unwrap()
        .unwrap()
        .version;
    assert!(reconciled(&sale).await.steps.is_empty());
    assert_eq!(
        sale.ledger
            .item(&sale.item.id)
            .await
            .unwrap()
            .unwrap()
            .version,
        version,
        "nothing was touched"
    );
    let nobodys = ItemId::new("no-such-item").unwrap();
    assert_eq!(
        explain(&sale.stock, &*sale.ledger, &nobodys).await.unwrap(),
        None
    );
    let none = reconcile_once(
        Arc::clone(&sale.stock),
        Arc::clone(&sale.ledger),
        lock().await,
        &nobodys,
    )
    .await
    .unwrap();
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
    let part = StockPart {
        transfer: TransferId::random(),
        segment: 1,
        units: 9,
    };
    sale.ledger
        .change_stock(
            &sale.item.id,
            &StockChange::TopUp(vec![part]),
            None,
            "admin",
        )
        .await
        .unwrap();
    sale.bend(1, 5).await;
    sale.stock.halt(&sale.segment(2), 1).await.unwrap();
    let _: i64 = sale.redis(redis::cmd("DEL").arg(sale.keys(3))).await;

    let wrong = told(&sale).await;
    assert_eq!(
        actions(&wrong),
        ["mend", "mend", "mend", "top_up", "return"],
        "{wrong:#?}"
    );
    assert!(wrong.is_pressing());
    let [drift, halted, gone, top_up, back] = &wrong.steps[..] else {
        panic!("{wrong:#?}")
    };
    assert_eq!((drift.segment, drift.units), (Some(1), 5));
    assert!(
        drift
            .why
            .contains("the ledger and the entries behind its checkpoint say"),
        "{}",
        drift.why
    );
    assert!(
        drift.would.contains("halt the segment, set it to"),
        "{}",
        drift.would
    );
    assert_eq!(halted.segment, Some(2));
    assert!(
        halted.why.contains("somebody began to mend it")
            && halted.would.contains("higher token than 1"),
        "{halted:?}"
    );
    assert!(
        halted
            .entries
            .iter()
            .any(|entry| entry.ends_with("halted, token 1")),
        "{halted:?}"
    );
    assert_eq!(
        (gone.segment, &gone.why[..]),
        (Some(3), "the segment is not in Redis")
    );
    assert!(
        gone.would
            .contains("give it back the orders that the ledger has"),
        "{}",
        gone.would
    );
    assert_eq!((top_up.segment, top_up.units), (Some(1), 9));
    assert!(
        top_up.would.contains(&part.transfer.to_string()),
        "{}",
        top_up.would
    );
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
    recorder::record_once(&sale.stock, &*sale.ledger, &sale.segments())
        .await
        .unwrap();
    let walks = told(&sale).await;
    assert_eq!(
        (actions(&walks), walks.is_pressing()),
        (vec!["walks"], false),
        "{walks:?}"
    );

    let part = StockPart {
        transfer: TransferId::random(),
        segment: 0,
        units: 1,
    };
    sale.ledger
        .change_stock(
            &sale.item.id,
            &StockChange::TakeBack(vec![part]),
            None,
            "admin",
        )
        .await
        .unwrap();
    let left = reconciled(&sale).await;
    assert!(
        left.is_pressing() && actions(&left).contains(&"take_back"),
        "{left:#?}"
    );
    assert!(
        left.steps[0]
            .why
            .contains("1 units are to go from segment 0 to outside"),
        "{left:#?}"
    );
    shop.record().await;
    let left = reconciled(&sale).await;
    assert!(!left.is_pressing(), "{left:#?}");
    assert_eq!(sale.report().await.stock, 7);
}

async fn it_is_repaired_by_hand_when_it_has_stood_and_not_before(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop.sell(20, 2).await;
    sale.comes_to_rest().await;
    let since = Instant::now();
    sale.bend(1, 4).await;
    let left = reconciled(&sale).await;
    assert!(left.steps.is_empty(), "{left:#?}");
    assert!(
        since.elapsed() >= ReconcilerSettings::default().confirm_for,
        "it was repaired after {:?}",
        since.elapsed()
    );
    assert_eq!(
        (sale.available().await, sale.journal("mend").await.len()),
        (vec![10, 10], 1)
    );
}

async fn a_difference_that_goes_away_is_not_repaired_by_hand(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop.sell(20, 2).await;
    sale.comes_to_rest().await;
    let confirm_for = ReconcilerSettings::default().confirm_for;
    loop {
        let (repaired, since) = (sale.journal("mend").await.len(), Instant::now());
        sale.bend(0, 5).await;
        let goes_away = async {
            tokio::time::sleep(confirm_for / 4).await;
            sale.bend(0, -5).await;
            since.elapsed()
        };
        let (left, after) = tokio::join!(reconciled(&sale), goes_away);
        // On a machine so busy that it stood for long enough after all, it is tried again.
        if after < confirm_for {
            assert!(left.steps.is_empty(), "{left:#?}");
            assert_eq!(
                (sale.available().await, sale.journal("mend").await.len()),
                (vec![10, 10], repaired)
            );
            return;
        }
        sale.comes_to_rest().await;
    }
}

/// More of another item are due, and for longer, than are ended at once.
async fn holds_that_are_over_are_ended_by_hand_behind_any_number_of_others(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop
        .sell_with(10, 2, |item| Item {
            hold_seconds: 1,
            ..item
        })
        .await;
    let others = Item {
        id: ItemId::new("others").unwrap(),
        ..sale.item.clone()
    };
    sale.ledger.create_item(&others).await.unwrap();
    shop.sql(
        "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) \
         SELECT gen_random_uuid(), 'others', 0, 'buyer-' || n, 1, 'held', now() - interval '1 hour' FROM generate_series(1, 6000) AS n",
        "INSERT INTO orders (id, item, segment, buyer, quantity, state, expires_at) \
         WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 6000) \
         SELECT randomblob(16), 'others', 0, 'buyer-' || n, 1, 'held', 1000 FROM numbers",
    )
    .await;
    let orders = sale.hold_many(0..6).await;
    // They are over one segment after the other.
    eventually("all six holds being over", async || {
        told(&sale)
            .await
            .steps
            .iter()
            .any(|step| step.action == "expire" && step.units == 6)
    })
    .await;
    let over = told(&sale).await;
    assert_eq!(
        (actions(&over), over.is_pressing()),
        (vec!["expire"], true),
        "{over:#?}"
    );
    let left = reconciled(&sale).await;
    assert!(!left.is_pressing(), "{left:#?}");
    for order in orders {
        assert_eq!(sale.state(order).await, Some(OrderState::Expired));
    }
    sale.comes_to_rest().await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), 10);
    assert_eq!(
        sale.ledger
            .due(Some(&others.id), Timestamp::now(), 10_000)
            .await
            .unwrap()
            .len(),
        6000,
        "nobody asked for these"
    );
}
