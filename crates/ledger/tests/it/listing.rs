//! Lists have every row once, and a page searches a bounded part of the ledger.

use cost::statements;
use domain::{BuyerId, Item, OrderId, OrderState};
use ledger::{Ledger, NewJournalEntry, Page};
use serde_json::json;
use testkit::on_both_databases;

use crate::env::{TestEnv, happen, order, order_of, segment, step, take};

on_both_databases!(crate::env::run:
    the_orders_of_an_item_are_listed_by_id,
    a_page_of_one_state_reads_a_bounded_number_of_orders,
    the_orders_of_a_buyer_are_found_by_one_statement_among_many_items,
    refunds_and_unmatched_payments_are_listed_from_their_indexes,
);

/// Follows a list to its end. Returns its rows, and the number of pages.
async fn all<T, K>(mut page: impl AsyncFnMut(Option<K>) -> Page<T, K>) -> (Vec<T>, usize) {
    let (mut rows, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let read = page(after).await;
        rows.extend(read.rows);
        pages += 1;
        after = read.next;
        if after.is_none() {
            return (rows, pages);
        }
    }
}

async fn ids_of(
    ledger: &dyn Ledger,
    item: &Item,
    state: Option<OrderState>,
    at_most: usize,
) -> (Vec<OrderId>, usize) {
    let (orders, pages) = all(async |after| {
        ledger
            .list_item_orders(&item.id, state, after, at_most)
            .await
            .unwrap()
    })
    .await;
    (orders.iter().map(|order| order.id).collect(), pages)
}

fn sorted(mut ids: Vec<OrderId>) -> Vec<OrderId> {
    ids.sort_unstable();
    ids
}

async fn the_orders_of_an_item_are_listed_by_id(env: &TestEnv) {
    let ledger = env.ledger().await;
    let vase = env.create(&*ledger, "vase", 100, 2).await;
    let jar = env.create(&*ledger, "jar", 100, 1).await;
    assert_eq!(ids_of(&*ledger, &vase, None, 10).await, (vec![], 1));
    let mut expected = Vec::new();
    for segment_number in 0..2 {
        let orders: Vec<_> = (0..5)
            .map(|n| order(&vase, usize::from(segment_number) * 5 + n, 1))
            .collect();
        expected.extend(orders.iter().map(|order| order.id));
        happen(&*ledger, &segment(&vase, segment_number), [take(orders)])
            .await
            .unwrap();
    }
    happen(&*ledger, &segment(&jar, 0), [take([order(&jar, 1, 1)])])
        .await
        .unwrap();
    let expected = sorted(expected);
    for (at_most, pages) in [(1, 10), (3, 4), (5, 2), (10, 1), (1000, 1)] {
        let listed = ids_of(&*ledger, &vase, None, at_most).await;
        assert_eq!(listed, (expected.clone(), pages), "{at_most}");
    }
    let gone = expected[4];
    step(&*ledger, gone, OrderState::Cancelled).await.unwrap();
    let cancelled = ids_of(&*ledger, &vase, Some(OrderState::Cancelled), 1).await;
    assert_eq!(cancelled, (vec![gone], 1));
    let (held, _) = ids_of(&*ledger, &vase, Some(OrderState::Held), 2).await;
    assert!(!held.contains(&gone) && held.len() == 9, "{held:?}");
    let units = ledger.list_items(None, 1).await.unwrap();
    assert_eq!(units.rows[0].item.id, jar.id);
    let units = &ledger.list_items(Some(&jar.id), 1).await.unwrap();
    assert_eq!(units.next, None);
    let unit = &units.rows[0];
    assert_eq!(
        [unit.available, unit.held, unit.confirmed, unit.returning],
        [90, 9, 0, 1]
    );
}

async fn a_page_of_one_state_reads_a_bounded_number_of_orders(env: &TestEnv) {
    let ledger = env.ledger().await;
    let vase = env.create_unlimited(&*ledger, "vase", 20_000, 1).await;
    for batch in 0..5 {
        let orders = (0..2100).map(|n| order(&vase, batch * 2100 + n, 1));
        happen(&*ledger, &segment(&vase, 0), [take(orders)])
            .await
            .unwrap();
    }
    let last = (0..10_500).map(|n| order(&vase, n, 1).id).max().unwrap();
    step(&*ledger, last, OrderState::Cancelled).await.unwrap();
    let first = ledger
        .list_item_orders(&vase.id, Some(OrderState::Cancelled), None, 10)
        .await
        .unwrap();
    assert!(first.rows.is_empty() && first.next.is_some(), "{first:?}");
    let cancelled = ids_of(&*ledger, &vase, Some(OrderState::Cancelled), 10).await;
    assert_eq!(cancelled, (vec![last], 2));
    let (held, _) = ids_of(&*ledger, &vase, Some(OrderState::Held), 1000).await;
    assert_eq!(held.len(), 10_499);
    assert!(held.is_sorted());
}

/// Items whose tags are spread over all tags, so that a search passes them.
const FILLERS: &str = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 6000) \
     INSERT INTO items (id, tag, title, stock, price, currency, segments, hold_seconds, durability, state, epoch, as_created) \
     SELECT 'filler-' || n, CAST(n AS bigint) * 700000, 'filler', 0, 0, 'EUR', 1, 60, 'recorded', 'open', 1, '{}' FROM n";

async fn the_orders_of_a_buyer_are_found_by_one_statement_among_many_items(env: &TestEnv) {
    let ledger = env.ledger_of_one_connection().await;
    let ann = BuyerId::new("ann").unwrap();
    let mut expected = Vec::new();
    for name in ["vase", "jar", "bowl"] {
        let item = env.create_unlimited(&*ledger, name, 100, 1).await;
        let anns = (0..3).map(|key| order_of(&item, &ann, key, 1));
        let orders: Vec<_> = anns.chain([order(&item, 7, 1)]).collect();
        expected.extend(orders[..3].iter().map(|order| order.id));
        happen(&*ledger, &segment(&item, 0), [take(orders)])
            .await
            .unwrap();
    }
    let expected = sorted(expected);
    ledger.list_buyer_orders(&ann, None, 1).await.unwrap();
    let page = async |buyer: &BuyerId, after, at_most| {
        let page = ledger.list_buyer_orders(buyer, after, at_most);
        let (page, read) = statements(page).await;
        assert_eq!(read.len(), 1, "{read:?}");
        let page = page.unwrap();
        assert!(page.next.is_none() || page.rows.len() == at_most);
        page
    };
    for fillers in [false, true] {
        if fillers {
            assert_eq!(env.sql(FILLERS).await.unwrap(), 6000);
        }
        for (at_most, pages) in [(1, 9), (4, 3), (9, 1), (1000, 1)] {
            let (orders, read) = all(async |after| page(&ann, after, at_most).await).await;
            let listed: Vec<_> = orders.iter().map(|order| order.id).collect();
            assert_eq!((listed, read), (expected.clone(), pages), "{at_most}");
        }
        let none = BuyerId::new("a buyer without orders").unwrap();
        let (orders, pages) = all(async |after| page(&none, after, 10).await).await;
        assert_eq!((orders, pages), (vec![], 1));
    }
}

async fn refunds_and_unmatched_payments_are_listed_from_their_indexes(env: &TestEnv) {
    let ledger = env.ledger().await;
    let mut expected = Vec::new();
    for name in ["vase", "jar"] {
        let item = env.create_unlimited(&*ledger, name, 100, 1).await;
        let orders: Vec<_> = (0..4).map(|n| order(&item, n, 1)).collect();
        happen(&*ledger, &segment(&item, 0), [take(orders.clone())])
            .await
            .unwrap();
        for order in &orders[..3] {
            step(&*ledger, order.id, OrderState::Expired).await.unwrap();
        }
        for order in &orders[..2] {
            step(&*ledger, order.id, OrderState::RefundDue)
                .await
                .unwrap();
            expected.push(order.id);
        }
        for payment in 0..2 {
            let entry = NewJournalEntry {
                item: item.id.clone(),
                actor: "payment".into(),
                action: "unmatched_payment".into(),
                token: None,
                before: json!({ "payment": payment }),
                after: json!({}),
            };
            ledger.note(&entry).await.unwrap();
        }
    }
    let expected = sorted(expected);
    for (at_most, pages) in [(1, 4), (2, 2), (3, 2), (4, 1), (5, 1)] {
        let (orders, read) =
            all(async |after| ledger.list_refunds_due(after, at_most).await.unwrap()).await;
        let listed: Vec<_> = orders.iter().map(|order| order.id).collect();
        assert_eq!((listed, read), (expected.clone(), pages), "{at_most}");
        let (entries, read) =
            all(async |after| ledger.list_payments_due(after, at_most).await.unwrap()).await;
        assert_eq!((entries.len(), read), (4, pages), "{at_most}");
        assert!(entries.is_sorted_by_key(|entry| entry.id));
    }
    step(&*ledger, expected[1], OrderState::Refunded)
        .await
        .unwrap();
    let left = ledger.list_refunds_due(None, 10).await.unwrap();
    assert_eq!(left.rows.len(), 3);
}
