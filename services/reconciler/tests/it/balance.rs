//! Transfers of units between segments during a sale.

use std::{sync::Arc, time::Duration};

use domain::{Item, Quantity};
use futures::StreamExt;
use reconciler::ReconcilerSettings;
use stock::{Outcome, Reservation, StockError};
use testkit::{Sale, TestEnv, buyer, eventually, is_held, on_both_databases, tested};

use crate::env::quick;

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

#[tested(on_both_databases(crate::env::run))]
async fn an_order_for_several_units_gets_those_that_lie_in_fragments(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell_with(6, 6, four_each).await;
    let early = || sale.reservation(&buyer(0), "early", 4);
    let at_first = sale.stock.item(&sale.item);
    let outcome = at_first
        .order(Reservation {
            within: Duration::from_millis(300),
            ..early()
        })
        .await;
    assert!(
        matches!(outcome, Err(StockError::OutcomeUnknown(_))),
        "no segment has as many, but the item has: {outcome:?}"
    );
    env.reconcile(balancing()).await;
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
    let late = sale.order(&buyer(2), "late", 4).await;
    assert!(late.is_sold_out(), "the item has none: {late:?}");
}

#[tested(on_both_databases(crate::env::run))]
async fn a_fresh_process_consolidates_fragments_before_its_first_spillover(env: &Arc<TestEnv>) {
    env.record().await;
    env.reconcile(balancing()).await;
    // The units are spread evenly, so none is moved before an order asks for it. Each attempt uses
    // a process that has just started. Few units are left, so a late consolidation request moves
    // none after the test.
    let sale = env.sell(40, 4).await;
    let mut attempts = 0;
    // Consolidation may take longer than an order waits for it; the next order finds it done.
    eventually("thirty units in one place", async || {
        attempts += 1;
        let fresh = env.stock().await;
        let outcome = fresh
            .item(&sale.item)
            .order(sale.reservation(&buyer(0), &format!("key-{attempts}"), 30))
            .await
            .unwrap();
        fresh.shutdown().await;
        is_held(&outcome)
    })
    .await;
    eprintln!("attempt {attempts} had its units");
}

#[tested(on_both_databases(crate::env::run))]
async fn an_empty_segment_is_refilled_from_full_ones(env: &Arc<TestEnv>) {
    env.record().await;
    let sale = env.sell(400, 4).await;
    for n in 0..95 {
        assert!(is_held(&sale.order(&sale.buyer_at(2, n), "key", 1).await));
    }
    assert_eq!(sale.available().await, [100, 100, 5, 100]);
    env.reconcile(balancing()).await;
    eventually("filling it up", async || sale.available().await[2] > 60).await;
    sale.comes_to_rest().await;
    let available = sale.available().await;
    assert_eq!(available.iter().sum::<u64>(), 305);
    assert!(
        available.iter().all(|units| (60..=100).contains(units)),
        "{available:?}"
    );
}

#[tested(on_both_databases(crate::env::run))]
async fn units_are_moved_during_a_rush_and_none_is_lost(env: &Arc<TestEnv>) {
    env.record().await;
    env.reconcile(balancing()).await;
    env.reconcile(balancing()).await;
    let sale = env.sell(2400, 4).await;
    let mut held = 0;
    for wave in 0..140 {
        // All buyers have the same home segment, which has 600 units.
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
    assert_eq!(held, 700, "there are enough units");
    sale.comes_to_rest().await;
    assert!(
        sale.available().await[1..].iter().sum::<u64>() < 1700,
        "no unit that was sold had been moved: {:?}",
        sale.available().await
    );
    assert_eq!(sale.report().await.held, 700);
    assert!(sale.journal("drift").await.is_empty());
}

#[tested(on_both_databases(crate::env::run))]
async fn as_many_buyers_as_units_all_get_one_while_a_reconciler_runs(env: &Arc<TestEnv>) {
    const UNITS: usize = 1000;
    env.record().await;
    env.reconcile(balancing()).await;
    let sale = env.sell(UNITS as u64, 8).await;
    // Most buyers have the same home segment, so that units are evened out.
    let (mut near, mut far) = (
        (0..).map(buyer).filter(|buyer| sale.home(buyer) == 0),
        (0..).map(buyer).filter(|buyer| sale.home(buyer) != 0),
    );
    let buyers: Vec<_> = (0..UNITS)
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
    let refused = outcomes.iter().filter(|outcome| !is_held(outcome)).count();
    assert_eq!(refused, 0, "there was a unit for each");
    sale.comes_to_rest().await;
    assert_eq!(sale.report().await.held, UNITS as u64);
}

fn one_each(item: Item) -> Item {
    Item {
        limit_per_buyer: Some(Quantity::new(1).unwrap()),
        ..item
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn no_units_are_moved_for_an_order_above_the_limit(env: &Arc<TestEnv>) {
    env.record().await;
    env.reconcile(balancing()).await;
    let sale = env.sell_with(40, 4, four_each).await;
    for attempt in 0..5 {
        let greedy = sale.order(&buyer(0), &format!("key-{attempt}"), 30).await;
        assert_eq!(greedy, Outcome::BuyerLimitReached);
    }
    assert_eq!(sale.available().await, [10; 4]);
    // Any process can publish a request; the reconciler knows the limit itself.
    for _ in 0..10 {
        let mut request = redis::cmd("PUBLISH");
        request
            .arg("stockade:consolidate")
            .arg(format!("{} 30", sale.item.id));
        let _: u64 = sale.redis(&request).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(sale.available().await, [10; 4]);
    assert!(sale.ledger.open_transfers(None).await.unwrap().is_empty());
}

#[tested(on_both_databases(crate::env::run))]
async fn as_many_buyers_as_units_all_get_one_beside_a_buyer_who_asks_for_too_many(
    env: &Arc<TestEnv>,
) {
    env.record().await;
    env.reconcile(balancing()).await;
    for _ in 0..3 {
        let sale = env.sell_with(600, 8, one_each).await;
        let greedy = async {
            for attempt in 0.. {
                let outcome = sale
                    .order(&buyer(9999), &format!("key-{attempt}"), 300)
                    .await;
                assert!(!is_held(&outcome));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let orders = (0..600).map(|n| {
            let sale = Arc::clone(&sale);
            async move { sale.order(&buyer(n), "key", 1).await }
        });
        let crowd = futures::stream::iter(orders)
            .buffer_unordered(64)
            .collect::<Vec<_>>();
        let outcomes = tokio::select! {
            outcomes = crowd => outcomes,
            () = greedy => unreachable!("it never ends"),
        };
        let refused = outcomes.iter().filter(|outcome| !is_held(outcome)).count();
        assert_eq!(refused, 0, "there was a unit for each");
        sale.comes_to_rest().await;
    }
}

#[tested(on_both_databases(crate::env::run))]
async fn units_of_an_item_that_does_not_sell_are_not_moved(env: &Arc<TestEnv>) {
    env.record().await;
    let sale: Arc<Sale> = env
        .sell_with(6, 6, |item| Item {
            state: domain::ItemState::Paused,
            ..four_each(item)
        })
        .await;
    env.reconcile(balancing()).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(sale.available().await, [1; 6]);
}
