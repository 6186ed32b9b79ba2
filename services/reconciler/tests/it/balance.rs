//! Units that are moved between segments while they sell.

use std::{sync::Arc, time::Duration};

use domain::{Item, Quantity};
use futures::StreamExt;
use reconciler::ReconcilerSettings;
use stock::Outcome;

use crate::shop::{Sale, Shop, buyer, eventually, is_held, on_both, quick};

on_both!(
    an_order_for_several_units_gets_those_that_lie_in_fragments,
    a_fresh_process_has_fragments_gathered_before_its_first_walk,
    an_empty_segment_is_filled_up_from_those_that_have_plenty,
    units_are_moved_in_the_middle_of_a_rush_and_none_is_lost,
    as_many_buyers_as_units_all_get_one_while_a_reconciler_watches,
    what_does_not_sell_is_left_where_it_is,
);

fn balancing() -> ReconcilerSettings {
    ReconcilerSettings {
        balance: true,
        ..quick()
    }
}

fn four_each(item: Item) -> Item {
    Item {
        limit_per_buyer: Some(Quantity::new(4).unwrap()),
        ..item
    }
}

async fn an_order_for_several_units_gets_those_that_lie_in_fragments(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop.sell_with(6, 6, four_each).await;
    assert_eq!(
        sale.order(&buyer(0), "early", 4).await,
        Outcome::SoldOut,
        "no segment has as many"
    );
    shop.reconcile(balancing()).await;
    let mut attempts = 0;
    eventually("four units in one place", async || {
        attempts += 1;
        is_held(&sale.order(&buyer(0), &format!("key-{attempts}"), 4).await)
    })
    .await;
    sale.comes_to_rest().await;
    assert_eq!(sale.available().await.iter().sum::<u64>(), 2);
    eventually("two units in one place", async || {
        attempts += 1;
        is_held(&sale.order(&buyer(1), &format!("key-{attempts}"), 2).await)
    })
    .await;
    assert_eq!(
        sale.order(&buyer(0), "early", 4).await,
        Outcome::SoldOut,
        "what it was answered stays answered"
    );
}

async fn a_fresh_process_has_fragments_gathered_before_its_first_walk(shop: &Arc<Shop>) {
    shop.record().await;
    shop.reconcile(balancing()).await;
    // Evenly spread: nothing is moved before somebody asks for it, and each who asks here has only just started. What is left is too few for a wish
    // that arrives late: nothing is moved any more when the test is over.
    let sale = shop.sell(40, 4).await;
    let mut attempts = 0;
    // Gathering may take longer than an order waits for it; the next one finds it done.
    eventually("thirty units in one place", async || {
        attempts += 1;
        let fresh = shop.stock().await;
        let outcome = fresh
            .item(&sale.item)
            .order(sale.ask(&buyer(0), &format!("key-{attempts}"), 30))
            .await
            .unwrap();
        fresh.shutdown().await;
        is_held(&outcome)
    })
    .await;
    eprintln!("attempt {attempts} had its units");
}

async fn an_empty_segment_is_filled_up_from_those_that_have_plenty(shop: &Arc<Shop>) {
    shop.record().await;
    let sale = shop.sell(400, 4).await;
    for n in 0..95 {
        assert!(is_held(&sale.order(&sale.buyer_at(2, n), "key", 1).await));
    }
    assert_eq!(sale.available().await, [100, 100, 5, 100]);
    shop.reconcile(balancing()).await;
    eventually("filling it up", async || sale.available().await[2] > 60).await;
    sale.comes_to_rest().await;
    let available = sale.available().await;
    assert_eq!(available.iter().sum::<u64>(), 305);
    assert!(
        available.iter().all(|units| (60..=100).contains(units)),
        "{available:?}"
    );
}

async fn units_are_moved_in_the_middle_of_a_rush_and_none_is_lost(shop: &Arc<Shop>) {
    shop.record().await;
    shop.reconcile(balancing()).await;
    shop.reconcile(balancing()).await;
    let sale = shop.sell(2400, 4).await;
    let mut held = 0;
    for wave in 0..140 {
        // All of them at home in one place, which has 600.
        let orders = (0..5).map(|n| {
            let sale = Arc::clone(&sale);
            async move { sale.order(&sale.buyer_at(0, wave * 5 + n), "key", 1).await }
        });
        held += futures::future::join_all(orders)
            .await
            .iter()
            .filter(|outcome| is_held(outcome))
            .count();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(held, 700, "there is plenty");
    sale.comes_to_rest().await;
    assert!(
        sale.available().await[1..].iter().sum::<u64>() < 1700,
        "some of what was sold had been moved: {:?}",
        sale.available().await
    );
    assert_eq!(sale.report().await.held, 700);
    assert!(sale.journal("drift").await.is_empty());
}

async fn as_many_buyers_as_units_all_get_one_while_a_reconciler_watches(shop: &Arc<Shop>) {
    shop.record().await;
    shop.reconcile(balancing()).await;
    let sale = shop.sell(3000, 8).await;
    // Most are at home in one place, so that there is something to even out.
    let (mut near, mut far) = (
        (0..).map(buyer).filter(|buyer| sale.home(buyer) == 0),
        (0..).map(buyer).filter(|buyer| sale.home(buyer) != 0),
    );
    let buyers: Vec<_> = (0..3000)
        .map(|n| if n % 4 == 0 { far.next() } else { near.next() }.unwrap())
        .collect();
    let orders = buyers.into_iter().map(|buyer| {
        let sale = Arc::clone(&sale);
        async move { sale.order(&buyer, "key", 1).await }
    });
    let outcomes: Vec<_> = futures::stream::iter(orders)
        .buffer_unordered(64)
        .collect()
        .await;
    let refused: Vec<_> = outcomes
        .iter()
        .filter(|outcome| !is_held(outcome))
        .collect();
    assert!(
        refused.is_empty(),
        "{} were refused although there was a unit for each: {:?}",
        refused.len(),
        refused[0]
    );
    sale.comes_to_rest().await;
    assert_eq!(sale.report().await.held, 3000);
}

async fn what_does_not_sell_is_left_where_it_is(shop: &Arc<Shop>) {
    shop.record().await;
    let sale: Arc<Sale> = shop
        .sell_with(6, 6, |item| Item {
            state: domain::ItemState::Paused,
            ..four_each(item)
        })
        .await;
    shop.reconcile(balancing()).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(sale.available().await, [1; 6]);
}
