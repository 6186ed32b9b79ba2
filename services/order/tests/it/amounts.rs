//! What an order costs: the price of its units, or the total of the shop.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use testkit::tested_in;

use crate::env::{ADMIN, Answer, Env, Options, TestEnv, on_both_ledgers, token};

impl TestEnv {
    /// The request of ann's order of a unit.
    fn order_at_amount(&self, item: &str, key: &str, body: &Value) -> RequestBuilder {
        let path = format!("/v1/items/{item}/orders");
        let request = self.anyone(Method::POST, &path).bearer_auth(token("ann"));
        request.header("Idempotency-Key", key).json(body)
    }

    async fn ordered_at(&self, item: &str, key: &str, amount: u64) -> Answer {
        let body = json!({ "quantity": 1, "amount": amount });
        Answer::of(self.order_at_amount(item, key, &body)).await
    }

    /// The result of an order of a unit in a batch for ann.
    async fn batch_at(&self, item: &str, key: &str, amount: u64) -> Value {
        let line = json!({ "buyer": "ann", "quantity": 1, "key": key, "amount": amount });
        let path = format!("/v1/items/{item}/orders:batch");
        let request = self.anyone(Method::POST, &path).bearer_auth(ADMIN);
        let placed = Answer::of(request.json(&json!({ "orders": [line] }))).await;
        placed.body["results"][0].clone()
    }
}

fn id(placed: &Answer) -> String {
    placed.is_held().id()
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_payment_pays_the_total_of_the_shop_and_not_the_price(env: Env) {
    let vase = env.create(json!({ "stock": 9, "price": 1999 })).await;
    let placed = env.ordered_at(&vase, "k", 2494).await;
    let order = id(&placed);
    let repeated = env.ordered_at(&vase, "k", 2494).await;
    assert_eq!(repeated.header("idempotent-replayed"), Some("true"));
    let shown = env.admin_gets(&format!("/v1/orders/{order}")).await;
    for shown in [&placed, &repeated, &shown] {
        let found = (&shown.body["price"], &shown.body["amount"]);
        assert_eq!(found, (&json!(1999), &json!(2494)), "{shown:?}");
    }
    let listed = env.admin(Method::GET, &format!("/v1/items/{vase}/orders"));
    assert_eq!(Answer::of(listed).await.body["data"][0]["amount"], 2494);
    let refused = env.ordered_at(&vase, "k", 2495).await;
    refused.is(422, "idempotency_key_reused");
    let refused = env.order(&vase, "ann", "k", 1).await;
    refused.is(422, "idempotency_key_reused");
    env.pay_amount(&order, &format!("price-{order}"), 1999)
        .await
        .is(422, "amount_mismatch");
    env.confirm_for(&order, &format!("total-{order}"), 2494)
        .await;
    let paid = env.ordered_at(&vase, "k", 2494).await;
    assert_eq!(paid.is_now_or_created("confirmed"), 2494);
    let refused = env.ordered_at(&vase, "k", 2495).await;
    refused.is(422, "idempotency_key_reused");
}

impl Answer {
    /// The amount of an order that was placed before and is in this state.
    fn is_now_or_created(&self, state: &str) -> u64 {
        assert_eq!(
            (self.status, &self.body["state"]),
            (201, &json!(state)),
            "{self:?}"
        );
        self.body["amount"].as_u64().unwrap()
    }
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn an_order_with_an_amount_is_answered_when_the_ledger_has_it(env: Env) {
    for durability in ["recorded", "accepted"] {
        let item = json!({ "stock": 9, "price": 5, "durability": durability });
        let item = env.create(item).await;
        let body = json!({ "quantity": 1, "amount": 7 });
        let request = env.order_at_amount(&item, "k", &body);
        let placed = Answer::of(request.header("Prefer", "respond-async")).await;
        assert_eq!(
            (placed.status, &placed.body["amount"]),
            (201, &json!(7)),
            "{placed:?}"
        );
        assert_eq!(placed.header("preference-applied"), None);
    }
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_repeat_states_the_amount_that_a_lost_request_did_not_until_the_order_is_paid(env: Env) {
    let vase = env.create(json!({ "stock": 9, "price": 5 })).await;
    let order = env.hold(&vase, "ann", "k").await;
    let stated = env.ordered_at(&vase, "k", 7).await;
    assert_eq!(id(&stated), order);
    assert_eq!(stated.body["amount"], 7);
    let refused = env.pay_amount(&order, &format!("p-{order}"), 5).await;
    refused.is(422, "amount_mismatch");
    let paid = env.hold(&vase, "ann", "l").await;
    env.confirm_for(&paid, &format!("p-{paid}"), 5).await;
    let refused = env.ordered_at(&vase, "l", 7).await;
    refused.is(422, "idempotency_key_reused");
}

/// A buyer places an order at its price, and repeats it with less.
#[tested_in(on_both_ledgers(Options::default()))]
async fn a_repeat_of_a_buyer_makes_no_order_cheaper(env: Env) {
    let vase = env.create(json!({ "stock": 9, "price": 1999 })).await;
    let order = env.hold(&vase, "ann", "k").await;
    for amount in [0, 1, 1998] {
        let refused = env.ordered_at(&vase, "k", amount).await;
        refused.is(422, "idempotency_key_reused");
        env.pay_amount(&order, &format!("{amount}-{order}"), amount)
            .await
            .is(422, "amount_mismatch");
    }
    let path = format!("/v1/items/{vase}");
    let cheaper = env.admin(Method::PATCH, &path);
    let cheaper = Answer::of(cheaper.json(&json!({ "price": 1000 }))).await;
    assert_eq!(cheaper.status, 200, "{cheaper:?}");
    let refused = env.ordered_at(&vase, "k", 1000).await;
    refused.is(422, "idempotency_key_reused");
    let same = env.ordered_at(&vase, "k", 1999).await;
    assert_eq!(id(&same), order);
    assert_eq!(same.body["amount"], 1999);
    // The shop may.
    let reduced = env.batch_at(&vase, "k", 1499).await;
    assert_eq!(reduced["id"], json!(order));
    assert_eq!(reduced["amount"], 1499);
    env.confirm_for(&order, &format!("p-{order}"), 1499).await;
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn only_an_admin_takes_a_voucher_off_and_one_of_all_is_free(env: Env) {
    let vase = env.create(json!({ "stock": 9, "price": 1999 })).await;
    for amount in [0, 1998] {
        let refused = env.ordered_at(&vase, "k", amount).await;
        let error = &refused.is(400, "invalid_request").body["errors"][0];
        assert_eq!(error["pointer"], "/amount", "{error}");
    }
    assert_eq!(env.units(&vase).await, [9, 0, 0]);
    let cheaper = env.batch_at(&vase, "k", 1499).await;
    assert_eq!(cheaper["amount"], 1499, "{cheaper}");
    let cheaper = cheaper["id"].as_str().unwrap();
    env.confirm_for(cheaper, &format!("p-{cheaper}"), 1499)
        .await;
    let free = env.batch_at(&vase, "l", 0).await;
    let free = free["id"].as_str().unwrap();
    env.confirm(free, &format!("p-{free}")).await;
}

#[tested_in(on_both_ledgers(Options::reconciled()))]
async fn an_order_that_takes_units_again_still_costs_its_total(env: Env) {
    let vase = json!({ "stock": 9, "price": 5, "hold_seconds": 1 });
    let vase = env.create(vase).await;
    let order = id(&env.ordered_at(&vase, "k", 7).await);
    env.becomes(&order, "expired").await;
    let refused = env.pay_amount(&order, &format!("price-{order}"), 5).await;
    refused.is(422, "amount_mismatch");
    let paid = env.pay_amount(&order, &format!("p-{order}"), 7).await;
    assert_eq!(paid.is_now("confirmed").body["amount"], 7);
}
