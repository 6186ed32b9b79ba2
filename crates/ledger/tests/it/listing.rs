//! Lists have every row once, no page is empty before the list ends, and a page reads what it
//! needs.

use cost::statements;
use domain::{BuyerId, Item, ItemId, OrderId, OrderState};
use ledger::{NewJournalEntry, Page};
use serde_json::json;
use testkit::{on_both_databases, tested};

use crate::env::{AnyLedger, TestEnv, becomes, happen, order, order_of, segment, take};

/// Follows a list to its end. Returns its rows, and the number of pages. Only the last may be
/// empty.
async fn all<T, K>(mut page: impl AsyncFnMut(Option<K>) -> Page<T, K>) -> (Vec<T>, usize) {
    let (mut rows, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let read = page(after).await;
        assert!(read.next.is_none() || !read.rows.is_empty());
        rows.extend(read.rows);
        pages += 1;
        after = read.next;
        if after.is_none() {
            return (rows, pages);
        }
    }
}

async fn ids_of(
    ledger: &impl AnyLedger,
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

#[tested(on_both_databases(crate::env::run))]
async fn the_orders_of_an_item_are_listed_by_id(env: &TestEnv) {
    let vase = env.create("vase", 100, 2).await;
    let jar = env.create("jar", 100, 1).await;
    assert_eq!(ids_of(env, &vase, None, 10).await, (vec![], 1));
    let mut expected = Vec::new();
    for segment_number in 0..2 {
        let orders: Vec<_> = (0..5)
            .map(|n| order(&vase, usize::from(segment_number) * 5 + n, 1))
            .collect();
        expected.extend(orders.iter().map(|order| order.id));
        happen(env, &segment(&vase, segment_number), [take(orders)]).await;
    }
    happen(env, &segment(&jar, 0), [take([order(&jar, 1, 1)])]).await;
    let expected = sorted(expected);
    for (at_most, pages) in [(1, 10), (3, 4), (5, 2), (10, 1), (1000, 1)] {
        let listed = ids_of(env, &vase, None, at_most).await;
        assert_eq!(listed, (expected.clone(), pages), "{at_most}");
    }
    let gone = expected[4];
    becomes(env, gone, OrderState::Cancelled).await;
    let cancelled = ids_of(env, &vase, Some(OrderState::Cancelled), 1).await;
    assert_eq!(cancelled, (vec![gone], 1));
    let (held, _) = ids_of(env, &vase, Some(OrderState::Held), 2).await;
    assert!(!held.contains(&gone) && held.len() == 9, "{held:?}");
    let units = env.list_items(None, 1).await.unwrap();
    assert_eq!(units.rows[0].item.id, jar.id);
    let units = &env.list_items(Some(&jar.id), 1).await.unwrap();
    assert_eq!(units.next, None);
    let unit = &units.rows[0];
    assert_eq!(
        [unit.available, unit.held, unit.confirmed, unit.returning],
        [90, 9, 0, 1]
    );
    let nothing = ItemId::new("nothing").unwrap();
    let names = [vase.id.clone(), nothing, jar.id.clone()];
    let some = env.listed_items(&names).await.unwrap();
    let found: Vec<_> = some.iter().map(|listed| &listed.item.id).collect();
    assert_eq!(found, [&jar.id, &vase.id]);
    assert_eq!(&some[1], unit);
    assert_eq!(env.listed_items(&[]).await.unwrap(), []);
}

/// An item with 25,000 held orders, of which none but the last is cancelled, and that order. A
/// search reads 10,000 of them.
async fn sale(env: &TestEnv, counted: &impl AnyLedger) -> (Item, OrderId) {
    let vase = env.create_unlimited("vase", 50_000, 1).await;
    for batch in 0..10 {
        let orders = (0..2500).map(|n| order(&vase, batch * 2500 + n, 1));
        happen(env, &segment(&vase, 0), [take(orders)]).await;
    }
    let last = (0..25_000).map(|n| order(&vase, n, 1).id).max().unwrap();
    becomes(env, last, OrderState::Cancelled).await;
    // Lists open their connection now, and not where statements are counted.
    counted
        .list_item_orders(&vase.id, None, None, 1)
        .await
        .unwrap();
    (vase, last)
}

#[tested(on_both_databases(crate::env::run))]
async fn a_page_of_one_state_ends_with_what_a_bounded_search_has_found(env: &TestEnv) {
    let ledger = env.ledger_of_one_connection().await;
    let (vase, last) = sale(env, &ledger).await;
    let first = (0..25_000).map(|n| order(&vase, n, 1).id).min().unwrap();
    becomes(&ledger, first, OrderState::Cancelled).await;
    let page = async |after| {
        let state = Some(OrderState::Cancelled);
        ledger
            .list_item_orders(&vase.id, state, after, 10)
            .await
            .unwrap()
    };
    let (found, read) = statements(page(None)).await;
    let ids: Vec<_> = found.rows.iter().map(|order| order.id).collect();
    assert_eq!(ids, [first]);
    assert!(found.next.is_some_and(|next| next > first), "{found:?}");
    assert_eq!(read.len(), 2, "one search: {read:?}");
    let rest = page(found.next).await;
    assert_eq!((rest.rows[0].id, rest.next), (last, None));
    let (held, _) = ids_of(&ledger, &vase, Some(OrderState::Held), 1000).await;
    assert_eq!(held.len(), 24_998);
    assert!(held.is_sorted());
    let cancelled = ids_of(&ledger, &vase, Some(OrderState::Cancelled), 10).await;
    assert_eq!(cancelled, (vec![first, last], 2));
}

/// No index has the confirmed and the expired orders.
#[tested(on_both_databases(crate::env::run))]
async fn a_page_of_one_state_searches_until_it_has_an_order(env: &TestEnv) {
    let ledger = env.ledger_of_one_connection().await;
    let (vase, last) = sale(env, &ledger).await;
    let confirmed =
        async || statements(ids_of(&ledger, &vase, Some(OrderState::Confirmed), 10)).await;
    let (none, read) = confirmed().await;
    assert_eq!(none, (vec![], 1));
    assert_eq!(read.len(), 3, "one search, and the counters: {read:?}");
    let ids = (0..25_000).map(|n| order(&vase, n, 1).id);
    let ids = sorted(ids.filter(|id| *id < last).collect());
    let (over, paid) = (ids[24_997], ids[24_998]);
    becomes(env, paid, OrderState::Confirmed).await;
    let (found, read) = confirmed().await;
    assert_eq!(found, (vec![paid], 1));
    assert_eq!(read.len(), 8, "three searches, two of them go on: {read:?}");
    becomes(env, over, OrderState::Expired).await;
    let expired = ids_of(&ledger, &vase, Some(OrderState::Expired), 10);
    let (found, read) = statements(expired).await;
    assert_eq!(found, (vec![over], 1));
    assert_eq!(read.len(), 8, "the same: {read:?}");
    let page = ledger.list_item_orders(&vase.id, Some(OrderState::Held), None, 10);
    let (page, read) = statements(page).await;
    assert_eq!(page.unwrap().rows.len(), 10);
    assert_eq!(read.len(), 2, "one search: {read:?}");
}

/// A console asks for the holds and refunds of a sale that is over every few seconds.
#[tested(on_both_databases(crate::env::run))]
async fn an_order_in_a_rare_state_is_found_by_an_index(env: &TestEnv) {
    let ledger = env.ledger_of_one_connection().await;
    let (vase, last) = sale(env, &ledger).await;
    let all_become = async |state| {
        env.sql(&format!("UPDATE orders SET state = '{state}'"))
            .await
    };
    let last_becomes = async |state| {
        let last = "SELECT id FROM orders ORDER BY id DESC LIMIT 1";
        let change = format!("UPDATE orders SET state = '{state}' WHERE id = ({last})");
        assert_eq!(env.sql(&change).await, 1);
    };
    all_become(OrderState::Confirmed).await;
    for state in [
        OrderState::Held,
        OrderState::RefundDue,
        OrderState::Rejected,
        OrderState::Cancelled,
        OrderState::Refunded,
    ] {
        let (none, read) = statements(ids_of(&ledger, &vase, Some(state), 10)).await;
        assert_eq!(none, (vec![], 1), "{state}");
        assert_eq!(read.len(), 3, "one search, and the index: {read:?}");
        last_becomes(state).await;
        let (found, read) = statements(ids_of(&ledger, &vase, Some(state), 10)).await;
        assert_eq!(found, (vec![last], 1), "{state}");
        assert_eq!(read.len(), 5, "two searches, and the index: {read:?}");
    }
    // As the counters of the segment have them.
    all_become(OrderState::Held).await;
    last_becomes(OrderState::Cancelled).await;
}

/// A drop asks for it, and pauses between its statements.
#[tested(on_both_databases(crate::env::run))]
async fn the_open_money_of_a_sale_is_counted_in_parts(env: &TestEnv) {
    let ledger = env.ledger_of_one_connection().await;
    let (vase, last) = sale(env, &ledger).await;
    let owed = async || {
        let (owed, read) = statements(ledger.orders_owed(&vase.id)).await;
        assert_eq!(read.len(), 6, "three parts: {read:?}");
        owed.unwrap()
    };
    let set = async |state: &str, which: &str| {
        let which = format!("(SELECT id FROM orders ORDER BY {which})");
        let change = format!("UPDATE orders SET state = '{state}' WHERE id IN {which}");
        env.sql(&change).await
    };
    // On both sides of the end of a part, and the last order.
    let (middle, end) = ("id LIMIT 2 OFFSET 9999", "id DESC LIMIT 1");
    assert_eq!(
        set("refund_due", middle).await + set("refund_due", end).await,
        3
    );
    assert_eq!(owed().await, 3);
    // As the counters of the segment have them.
    assert_eq!(set("held", middle).await + set("cancelled", end).await, 3);
    assert_eq!(owed().await, 0);
    assert_eq!(
        ids_of(&ledger, &vase, Some(OrderState::Cancelled), 10)
            .await
            .0,
        [last]
    );
}

/// Items whose tags are spread over all tags, so that a search passes them.
const FILLERS: &str = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 6000) \
     INSERT INTO items (id, tag, title, stock, price, currency, segments, hold_seconds, durability, state, epoch, as_created) \
     SELECT 'filler-' || n, CAST(n AS bigint) * 700000, 'filler', 0, 0, 'EUR', 1, 60, 'recorded', 'open', 1, '{}' FROM n";

#[tested(on_both_databases(crate::env::run))]
async fn the_orders_of_a_buyer_are_found_by_one_statement_among_many_items(env: &TestEnv) {
    let ledger = env.ledger_of_one_connection().await;
    let ann = BuyerId::new("ann").unwrap();
    let mut expected = Vec::new();
    for name in ["vase", "jar", "bowl"] {
        let item = env.create_unlimited(name, 100, 1).await;
        let anns = (0..3).map(|key| order_of(&item, &ann, key, 1));
        let orders: Vec<_> = anns.chain([order(&item, 7, 1)]).collect();
        expected.extend(orders[..3].iter().map(|order| order.id));
        happen(&ledger, &segment(&item, 0), [take(orders)]).await;
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
            assert_eq!(env.sql(FILLERS).await, 6000);
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

#[tested(on_both_databases(crate::env::run))]
async fn refunds_and_unmatched_payments_are_listed_from_their_indexes(env: &TestEnv) {
    let mut expected = Vec::new();
    for name in ["vase", "jar"] {
        let item = env.create_unlimited(name, 100, 1).await;
        let orders: Vec<_> = (0..4).map(|n| order(&item, n, 1)).collect();
        happen(env, &segment(&item, 0), [take(orders.clone())]).await;
        for order in &orders[..3] {
            becomes(env, order.id, OrderState::Expired).await;
        }
        for order in &orders[..2] {
            becomes(env, order.id, OrderState::RefundDue).await;
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
            env.note(&entry).await.unwrap();
        }
    }
    let expected = sorted(expected);
    for (at_most, pages) in [(1, 4), (2, 2), (3, 2), (4, 1), (5, 1)] {
        let (orders, read) =
            all(async |after| env.list_refunds_due(after, at_most).await.unwrap()).await;
        let listed: Vec<_> = orders.iter().map(|order| order.id).collect();
        assert_eq!((listed, read), (expected.clone(), pages), "{at_most}");
        let (entries, read) =
            all(async |after| env.list_payments_due(after, at_most).await.unwrap()).await;
        assert_eq!((entries.len(), read), (4, pages), "{at_most}");
        assert!(entries.is_sorted_by_key(|entry| entry.id));
    }
    becomes(env, expected[1], OrderState::Refunded).await;
    let left = env.list_refunds_due(None, 10).await.unwrap();
    assert_eq!(left.rows.len(), 3);
}
