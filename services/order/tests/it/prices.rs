//! A price that changes: orders that exist keep theirs, and no order is told another one than it is
//! recorded with.

use std::collections::HashMap;

use ledger::{Changed, ItemChange};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::{eventually_some, tested_in};

use crate::env::{Answer, Env, Options, TestEnv, on_both_ledgers};

const DURABILITIES: [&str; 2] = ["recorded", "accepted"];

fn two_instances() -> Options {
    Options::default().with_instances(2)
}

/// Id, price and amount of an order that has units.
fn told(answer: &Answer) -> (String, u64, u64) {
    assert!([200, 201, 202].contains(&answer.status), "{answer:?}");
    let number = |field: &str| answer.body[field].as_u64().unwrap();
    let id = answer.id();
    (id, number("price"), number("amount"))
}

impl TestEnv {
    async fn reprice(&self, item: &str, price: u64) -> Answer {
        let path = format!("/v1/items/{item}");
        let patch = self.admin(Method::PATCH, &path);
        Answer::of(patch.json(&json!({ "price": price }))).await
    }

    async fn order_from(&self, instance: usize, item: &str, key: &str) -> Answer {
        Answer::of(self.order_at(instance, item, "ann", key, 1)).await
    }

    /// The order as the ledger has recorded it, by the list of the item's orders.
    async fn recorded(&self, item: &str, order: &str) -> Value {
        let path = format!("/v1/items/{item}/orders?limit=1000");
        eventually_some("a recorded order", async || {
            let page = self.admin_gets(&path).await;
            let rows = page.rows();
            rows.iter().find(|row| row["id"] == order).cloned()
        })
        .await
    }

    async fn shown_order(&self, order: &str) -> Answer {
        self.admin_gets(&format!("/v1/orders/{order}")).await
    }
}

#[tested_in(on_both_ledgers(two_instances()))]
async fn orders_that_exist_keep_the_price_they_were_made_with(env: Env) {
    for durability in DURABILITIES {
        let item = json!({ "stock": 20, "segments": 3, "price": 1999, "durability": durability });
        let item = env.create(item).await;
        let (old, price, _) = told(&env.order_from(0, &item, "old").await);
        assert_eq!(price, 1999);
        told(&env.order_from(1, &item, "warm").await);
        let changed = env.reprice(&item, 450).await;
        assert_eq!((changed.status, &changed.body["price"]), (200, &json!(450)));
        let (new, price, amount) = told(&env.order_from(1, &item, "new").await);
        assert_eq!((price, amount), (450, 450), "{durability}");
        for instance in 0..2 {
            let again = env.order_from(instance, &item, "old").await;
            assert_eq!(told(&again), (old.clone(), 1999, 1999));
            assert_eq!(again.header("idempotent-replayed"), Some("true"));
        }
        for (order, amount) in [(&old, 1999), (&new, 450)] {
            assert_eq!(env.recorded(&item, order).await["amount"], amount);
            assert_eq!(told(&env.shown_order(order).await).1, amount);
            let other = 1999 + 450 - amount;
            env.pay_amount(order, &format!("other-{order}"), other)
                .await
                .is(422, "amount_mismatch");
            env.confirm_for(order, &format!("own-{order}"), amount)
                .await;
        }
        // The first price may come back, and the order between keeps the other one.
        env.reprice(&item, 1999).await;
        assert_eq!(told(&env.order_from(0, &item, "last").await).1, 1999);
        assert_eq!(told(&env.shown_order(&new).await).1, 450);
    }
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_price_changes_as_other_terms_of_an_item_do(env: Env) {
    let item = env.create(json!({ "stock": 5, "price": 1999 })).await;
    let path = format!("/v1/items/{item}");
    let version = env.admin_gets(&path).await;
    let version = version.header("etag").unwrap().to_owned();
    let patch = |price: Value| {
        let patch = env
            .admin(Method::PATCH, &path)
            .json(&json!({ "price": price }));
        Answer::of(patch.header("If-Match", &version))
    };
    for bad in [
        json!(null),
        json!(-1),
        json!("450"),
        json!(1_000_000_000_001_u64),
    ] {
        patch(bad).await.is(400, "invalid_request");
    }
    assert_eq!(patch(json!(450)).await.body["price"], 450);
    // A repeat finds its own change; another change finds another version.
    assert_eq!(patch(json!(450)).await.status, 200);
    patch(json!(451)).await.is(412, "version_mismatch");
    let entries = env.journal(&item, "price").await;
    let [entry] = &entries[..] else {
        panic!("{entries:?}");
    };
    let prices = (&entry["before"]["price"], &entry["after"]["price"]);
    assert_eq!(prices, (&json!(1999), &json!(450)));
    assert_eq!(entry["actor"], "admin");
    let listed = env.admin_gets("/v1/items?limit=1000").await;
    let rows = listed.rows();
    let row = rows.iter().find(|row| row["id"] == json!(item)).unwrap();
    assert_eq!(row["price"], 450);
    let same = json!({ "id": item, "stock": 5, "price": 1999 });
    let again = env.admin_posts("/v1/items", &same).await;
    assert_eq!((again.status, &again.body["price"]), (201, &json!(450)));
}

#[tested_in(on_both_ledgers(two_instances()))]
async fn orders_beside_changes_of_the_price_are_recorded_as_they_were_told(env: Env) {
    for durability in DURABILITIES {
        let item = json!({ "stock": 500, "segments": 4, "price": 1, "durability": durability });
        let item = env.create(item).await;
        let place = async |buyer: usize| {
            let mut placed = Vec::new();
            for n in 0..12 {
                let (buyer, key) = (format!("buyer-{buyer}"), format!("k-{n}"));
                let first = env.order_at(n % 2, &item, &buyer, &key, 1);
                let first = told(&Answer::of(first).await);
                let again = env.order_at((n + 1) % 2, &item, &buyer, &key, 1);
                assert_eq!(told(&Answer::of(again).await), first);
                placed.push(first);
            }
            placed
        };
        let change = async {
            for price in 2..20 {
                assert_eq!(env.reprice(&item, price).await.status, 200);
            }
        };
        let buyers = futures::future::join_all((0..8).map(place));
        let (placed, ()) = futures::future::join(buyers, change).await;
        let placed: Vec<_> = placed.into_iter().flatten().collect();
        let mut prices: HashMap<u64, usize> = HashMap::new();
        for (order, price, _) in &placed {
            *prices.entry(*price).or_default() += 1;
            assert_eq!(env.recorded(&item, order).await["amount"], *price);
            assert_eq!(told(&env.shown_order(order).await).1, *price);
        }
        eprintln!("{durability}: orders by price: {prices:?}");
        let (_, last, _) = told(&env.order_from(1, &item, "last").await);
        assert_eq!(last, 19, "every order after the last change has its price");
    }
}

/// A service that crashes between the ledger and Redis leaves a change that no segment has.
#[tested_in(on_both_ledgers(two_instances()))]
async fn a_change_that_stopped_half_way_gives_no_order_two_prices(env: Env) {
    let item = json!({ "stock": 20, "segments": 2, "price": 1999 });
    let item = env.create(item).await;
    let change = ItemChange {
        price: Some(450),
        ..ItemChange::default()
    };
    let ledger = &env.engines[0].ledger;
    let id = item.parse().unwrap();
    let changed = ledger.change_item(&id, &change, None, "admin").await;
    assert!(matches!(changed, Ok(Changed::Item(_))));
    for instance in 0..2 {
        let key = format!("between-{instance}");
        let (order, price, _) = told(&env.order_from(instance, &item, &key).await);
        // The sweep of the recorder may have completed the change.
        assert!([1999, 450].contains(&price), "{price}");
        assert_eq!(env.recorded(&item, &order).await["amount"], price);
        assert_eq!(
            told(&env.order_from(1 - instance, &item, &key).await).1,
            price
        );
    }
    // The repeat of the request completes it.
    assert_eq!(env.reprice(&item, 450).await.status, 200);
    for instance in 0..2 {
        let (order, price, _) = told(
            &env.order_from(instance, &item, &format!("k-{instance}"))
                .await,
        );
        assert_eq!(price, 450);
        assert_eq!(env.recorded(&item, &order).await["amount"], 450);
    }
}

/// Until the ledger has an order, its segment's log is all that knows what its buyer was told.
#[tested_in(on_both_ledgers(Options {
    recorder: false,
    ..two_instances()
}))]
async fn an_order_that_is_recorded_after_a_change_has_the_price_that_was_told(env: Env) {
    let item = json!({ "stock": 20, "segments": 3, "price": 1999, "durability": "accepted" });
    let item = env.create(item).await;
    let (old, ..) = told(&env.order_from(0, &item, "old").await);
    env.reprice(&item, 450).await;
    let (new, ..) = told(&env.order_from(0, &item, "new").await);
    env.reprice(&item, 700).await;
    for (key, order, price) in [("old", &old, 1999), ("new", &new, 450)] {
        for instance in 0..2 {
            let again = env.order_from(instance, &item, key).await;
            assert_eq!(again.status, 202);
            assert_eq!(told(&again), (order.clone(), price, price));
        }
        assert_eq!(told(&env.shown_order(order).await).1, price);
    }
    env.start_recorder();
    for (order, price) in [(&old, 1999), (&new, 450)] {
        assert_eq!(env.recorded(&item, order).await["amount"], price);
        env.confirm_for(order, &format!("pay-{order}"), price).await;
    }
}

#[tested_in(on_both_ledgers(two_instances()))]
async fn a_buyer_states_no_less_than_the_price_of_now_and_a_repeat_gets_its_answer(env: Env) {
    let item = env.create(json!({ "stock": 20, "price": 100 })).await;
    let place = async |instance: usize, key: &str, amount: u64| {
        let request = env.order_at(instance, &item, "ann", key, 1);
        let body = json!({ "quantity": 1, "amount": amount });
        Answer::of(request.json(&body)).await
    };
    let (old, _, amount) = told(&place(0, "old", 100).await);
    assert_eq!(amount, 100);
    told(&place(1, "warm", 100).await);
    env.reprice(&item, 300).await;
    for instance in 0..2 {
        place(instance, "new", 299).await.is(400, "invalid_request");
        assert_eq!(
            told(&place(instance, "old", 100).await),
            (old.clone(), 100, 100)
        );
    }
    assert_eq!(told(&place(1, "new", 300).await).2, 300);
}
