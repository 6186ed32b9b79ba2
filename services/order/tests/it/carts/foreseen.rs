//! Carts that are refused before anything is written for them.

use std::time::Duration;

use domain::Cart;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use testkit::{eventually, tested_in};

use crate::env::{Env, Options, TestEnv, on_both_ledgers, open, open_each};

impl TestEnv {
    async fn carts_of(&self, buyer: &str) -> usize {
        let carts = self.buyer_gets(buyer, "/v1/carts").await;
        carts.rows().len()
    }

    /// The kinds of all events of carts, once those of this cart are among them.
    async fn cart_events(&self, until: &str) -> Vec<String> {
        let mut found = Vec::new();
        eventually("the event of the last cart", async || {
            let page = self.admin_gets("/v1/events?limit=1000").await;
            let events = page.rows();
            let of_carts = events.iter().filter(|event| {
                let kind = event["type"].as_str().unwrap();
                kind.starts_with("stockade.cart.")
            });
            let of_carts: Vec<&Value> = of_carts.collect();
            let kinds = of_carts.iter().map(|event| event["type"].as_str().unwrap());
            found = kinds.map(str::to_owned).collect();
            of_carts.iter().any(|event| event["subject"] == until)
        })
        .await;
        found
    }
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_cart_that_a_limit_or_a_closed_item_refuses_leaves_no_row_and_no_event(env: Env) {
    let limited = json!({ "stock": 9, "limit_per_buyer": 2 });
    let (small, full) = (env.create(limited.clone()).await, env.create(limited).await);
    env.order(&full, "ann", "k", 2).await.is_held();
    let hour = SignedDuration::from_hours(1);
    let [later, before] = [Timestamp::now() + hour, Timestamp::now() - hour];
    let early = json!({ "stock": 9, "opens_at": later });
    let late = json!({ "stock": 9, "opens_at": before - hour, "closes_at": before });
    let (early, late) = (env.create(early).await, env.create(late).await);
    let (paused, closed) = (
        env.create(json!({ "stock": 9 })).await,
        env.create(json!({ "stock": 9 })).await,
    );
    env.put_state(&paused, "paused").await;
    env.put_state(&closed, "closed").await;
    let other = env.create(json!({ "stock": 9 })).await;
    let cases = [
        (&small, 3, "buyer_limit_reached"),
        (&full, 1, "buyer_limit_reached"),
        (&early, 1, "not_open"),
        (&late, 1, "not_open"),
        (&paused, 1, "not_open"),
        (&closed, 1, "not_open"),
    ];
    for (item, quantity, code) in cases {
        for n in 0..10 {
            let lines = [(&*other, 1), (item.as_str(), quantity)];
            let key = format!("{item}-{n}");
            let refused = env.cart("ann", &key, &lines).await;
            let body = &refused.is(409, code).body;
            assert_eq!(
                (&body["item"], &body["final"]),
                (&json!(item), &json!(false)),
                "{body}"
            );
        }
    }
    assert_eq!(env.carts_of("ann").await, 0);
    assert_eq!(env.units(&other).await, [9, 0, 0]);
    // The key is not decided.
    env.put_state(&paused, "open").await;
    let key = format!("{paused}-0");
    let lines = [(&*other, 1), (&*paused, 1)];
    let mut held = String::new();
    eventually("a cart of the item that sells again", async || {
        let placed = env.cart("ann", &key, &lines).await;
        if placed.status != 201 {
            placed.is(409, "not_open");
            return false;
        }
        placed.body["id"].as_str().unwrap().clone_into(&mut held);
        true
    })
    .await;
    assert_eq!(env.cart_events(&held).await, ["stockade.cart.held"]);
}

#[tested_in(on_both_ledgers(Options {
    // Each cart comes when the sold-out cache is too old.
    sold_out_cache_ttl: Duration::from_nanos(1),
    ..Options::default()
}))]
async fn a_cart_of_more_units_than_are_left_leaves_no_row_and_no_event(env: Env) {
    let (few, apart) = (
        env.create(json!({ "stock": 5, "segments": 1 })).await,
        env.create(json!({ "stock": 8, "segments": 4 })).await,
    );
    let sold = env.create(json!({ "stock": 1, "segments": 1 })).await;
    let other = env.create(json!({ "stock": 9 })).await;
    // From then on this instance knows what is left.
    for item in [&few, &apart, &sold] {
        env.hold(item, "bob", "k").await;
    }
    for (item, quantity) in [(&few, 5), (&few, 1_000_000), (&apart, 9), (&sold, 1)] {
        for n in 0..10 {
            let lines = [(&*other, 1), (item.as_str(), quantity)];
            let key = format!("{item}-{quantity}-{n}");
            let refused = env.cart("ann", &key, &lines).await;
            let body = &refused.is(409, "sold_out").body;
            assert_eq!(
                (&body["item"], &body["final"]),
                (&json!(item), &json!(false)),
                "{body}"
            );
        }
    }
    assert_eq!(env.carts_of("ann").await, 0);
    assert_eq!(env.units(&other).await, [9, 0, 0]);
    // What is left can be bought.
    let held = env.held_cart("ann", "k", &[(&few, 4)]).await;
    assert_eq!(env.cart_events(&held).await, ["stockade.cart.held"]);
}

#[tested_in(open_each(Options::default()))]
async fn a_known_cart_gets_its_recorded_answer_whatever_would_refuse_it_now(env: Env) {
    let item = json!({ "stock": 1, "segments": 1, "limit_per_buyer": 1 });
    let (vase, bowl) = (env.create(item.clone()).await, env.create(item).await);
    let lines = [(&*vase, 1), (&*bowl, 1)];
    let cart = env.held_cart("ann", "k", &lines).await;
    let is_repeated = async |why: &str| {
        let repeated = env.cart("ann", "k", &lines).await;
        assert_eq!(repeated.is_held().body["id"], json!(cart), "{why}");
    };
    is_repeated("the limit is reached, and no unit is left").await;
    // It fills the sold-out cache.
    let sold_out = env.cart("bob", "k", &[(&vase, 1)]).await;
    sold_out.is(409, "sold_out");
    is_repeated("the item is known to be sold out").await;
    env.put_state(&vase, "closed").await;
    eventually("a cart that the closed item refuses", async || {
        env.cart("bob", "l", &[(&vase, 1)]).await.code() == "not_open"
    })
    .await;
    is_repeated("the item is known to be closed").await;
    let refused = env.cart("ann", "k", &[(&vase, 1)]).await;
    refused.is(422, "idempotency_key_reused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cart_costs_no_more_than_a_payment_can_report() {
    const UNITS: u32 = 1_000_000;
    open(Options::default(), async |env| {
        let dear = json!({ "stock": UNITS, "segments": 1, "price": 1_000_000_000_000_u64 });
        let (vase, bowl) = (env.create(dear.clone()).await, env.create(dear).await);
        for key in ["k", "k"] {
            let refused = env.cart("ann", key, &[(&vase, UNITS), (&bowl, 1)]).await;
            let errors = &refused.is(400, "invalid_request").body["errors"];
            assert_eq!(errors[0]["pointer"], "/lines/1/quantity", "{errors}");
        }
        assert_eq!(env.carts_of("ann").await, 0);
        let placed = env
            .cart("ann", "k", &[(&vase, UNITS - 1), (&bowl, 1)])
            .await;
        let id = placed.is_held().body["id"].as_str().unwrap();
        assert_eq!(placed.body["amount"], json!(Cart::AMOUNT_MAX));
        for answer in [
            env.cart("ann", "k", &[(&vase, UNITS - 1), (&bowl, 1)])
                .await,
            env.read_cart(id).await,
            env.pay_cart(id, &format!("p-{id}"), Some(Cart::AMOUNT_MAX))
                .await,
        ] {
            assert_eq!(answer.body["amount"], json!(Cart::AMOUNT_MAX), "{answer:?}");
        }
        env.read_cart(id).await.is_now("confirmed");
    })
    .await;
}
