//! Carts beside changes of a price: a cart costs what its first answer says.

use reqwest::Method;
use serde_json::json;
use testkit::tested_in;

use super::cart_of;
use crate::env::{Answer, Env, Options, TestEnv, on_both_ledgers};

fn two_instances() -> Options {
    Options::default().with_instances(2)
}

impl TestEnv {
    async fn price_is_now(&self, item: &str, price: u64) {
        let patch = self.admin(Method::PATCH, &format!("/v1/items/{item}"));
        let patched = Answer::of(patch.json(&json!({ "price": price }))).await;
        assert_eq!(patched.status, 200, "{patched:?}");
    }
}

fn id_and_amount(placed: &Answer) -> (String, u64) {
    let id = placed.is_held().id();
    (id, placed.body["amount"].as_u64().unwrap())
}

#[tested_in(on_both_ledgers(two_instances()))]
async fn a_cart_costs_what_it_was_placed_for_and_the_next_one_the_new_price(env: Env) {
    let vase = json!({ "stock": 9, "segments": 2, "price": 1999 });
    let vase = env.create(vase).await;
    let jar = env.create(json!({ "stock": 9, "price": 100 })).await;
    let lines = cart_of(&[(&vase, 2), (&jar, 1)]);
    let (old, amount) = id_and_amount(&env.post_cart(0, "ann", "old", &lines).await);
    assert_eq!(amount, 2 * 1999 + 100);
    id_and_amount(&env.post_cart(1, "ann", "warm", &lines).await);
    env.price_is_now(&vase, 450).await;
    for instance in 0..2 {
        let again = env.post_cart(instance, "ann", "old", &lines).await;
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(id_and_amount(&again), (old.clone(), amount));
        let key = format!("new-{instance}");
        let (new, amount) = id_and_amount(&env.post_cart(instance, "ann", &key, &lines).await);
        assert_eq!(amount, 2 * 450 + 100);
        env.confirm_cart(&new, &format!("pay-{new}"), Some(amount))
            .await;
    }
    env.pay_cart(&old, &format!("new-{old}"), Some(2 * 450 + 100))
        .await
        .is(422, "amount_mismatch");
    env.confirm_cart(&old, &format!("old-{old}"), Some(amount))
        .await;
}

#[tested_in(on_both_ledgers(two_instances()))]
async fn a_total_below_the_new_price_is_refused_and_a_repeat_of_a_cart_is_not(env: Env) {
    let vase = env.create(json!({ "stock": 9, "price": 100 })).await;
    let mut lines = cart_of(&[(&vase, 1)]);
    let (plain, _) = id_and_amount(&env.post_cart(0, "ann", "plain", &lines).await);
    let unstated = lines.clone();
    lines["amount"] = json!(150);
    let (old, amount) = id_and_amount(&env.post_cart(0, "ann", "old", &lines).await);
    assert_eq!(amount, 150);
    env.price_is_now(&vase, 300).await;
    for instance in 0..2 {
        let refused = env.post_cart(instance, "ann", "new", &lines).await;
        refused.is(400, "invalid_request");
        let again = env.post_cart(instance, "ann", "old", &lines).await;
        assert_eq!(id_and_amount(&again), (old.clone(), 150));
        let again = env.post_cart(instance, "ann", "plain", &unstated).await;
        assert_eq!(id_and_amount(&again), (plain.clone(), 100));
        let other = env.post_cart(instance, "ann", "old", &unstated).await;
        other.is(422, "idempotency_key_reused");
    }
}
