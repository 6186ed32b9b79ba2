//! Carts that an admin places for a buyer.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::tested_in;

use super::cart_of;
use crate::env::{ADMIN, Answer, Env, Options, TestEnv, on_both_ledgers};

impl TestEnv {
    pub async fn cart_by_admin(&self, key: &str, body: &Value) -> Answer {
        let request = self.anyone(Method::POST, "/v1/carts").bearer_auth(ADMIN);
        Answer::of(request.header("Idempotency-Key", key).json(body)).await
    }
}

/// A cart of these lines for this buyer.
fn cart_for(buyer: &str, lines: &[(&str, u32)]) -> Value {
    let mut cart = cart_of(lines);
    cart["buyer"] = json!(buyer);
    cart
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_cart_by_an_admin_is_the_buyers_and_the_journals_name_the_admin_once(env: Env) {
    let vase = env.create(json!({ "stock": 9, "price": 300 })).await;
    let bowl = env.create(json!({ "stock": 9, "price": 50 })).await;
    let plate = env.create(json!({ "stock": 9 })).await;
    let lines = [(&*vase, 2), (&*bowl, 1)];
    let new = cart_for("ann", &lines);
    let placed = env.cart_by_admin("k", &new).await;
    let id = placed.is_held().body["id"].as_str().unwrap();
    for again in [
        env.cart_by_admin("k", &new).await,
        env.cart("ann", "k", &lines).await,
    ] {
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(again.is_held().body, placed.body);
    }
    let of_bob = env.cart_by_admin("k", &cart_for("bob", &lines)).await;
    assert_ne!(of_bob.is_held().body["id"], placed.body["id"]);
    env.cancel_cart("bob", id).await.is(404, "cart_not_found");
    env.held_cart("ann", "own", &[(&plate, 1)]).await;
    for (item, actors) in [
        (&vase, vec!["admin"]),
        (&bowl, vec!["admin"]),
        (&plate, vec![]),
    ] {
        let entries = env.journal(item, "place_orders").await;
        let found: Vec<_> = entries.iter().map(|entry| &entry["actor"]).collect();
        assert_eq!(found, actors, "{item}");
    }
    env.confirm_cart(id, &format!("pay-{id}"), Some(650)).await;
    assert_eq!(env.units(&vase).await, [5, 2, 2]);
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn an_admin_names_the_buyer_of_a_cart_and_a_buyer_does_not(env: Env) {
    let vase = env.create(json!({ "stock": 9 })).await;
    let lines = [(&*vase, 1)];
    for body in [
        cart_of(&lines),
        cart_for("", &lines),
        cart_for("..", &lines),
        cart_for("a\nb", &lines),
    ] {
        let refused = env.cart_by_admin("k", &body).await;
        let errors = &refused.is(400, "invalid_request").body["errors"];
        assert_eq!(errors[0]["pointer"], "/buyer", "{body}: {errors}");
    }
    for buyer in ["ann", "bob"] {
        let refused = env.post_cart(0, "ann", "k", &cart_for(buyer, &lines)).await;
        let errors = &refused.is(400, "invalid_request").body["errors"];
        assert_eq!(errors[0]["pointer"], "/buyer", "{errors}");
    }
    let unknown = cart_for("ann", &[(&vase, 1), ("no-such-item", 1)]);
    let answer = env.cart_by_admin("k", &unknown).await;
    answer.is(404, "item_not_found");
    assert_eq!(env.units(&vase).await, [9, 0, 0]);
    assert!(env.journal(&vase, "place_orders").await.is_empty());
}
