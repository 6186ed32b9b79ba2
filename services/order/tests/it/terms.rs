//! What an item allows one order, what is added to it later, and how keys and preferences are read.

use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::json;
use testkit::{eventually, tested_in};

use crate::env::{Answer, Env, Options, open, open_each};

#[tested_in(open(Options::default()))]
async fn an_order_may_ask_for_the_items_maximum_and_no_more(env: Env) {
    let item = env.create(json!({ "stock": 9, "max_per_order": 2 })).await;
    env.order(&item, "ann", "k", 2).await.is_held();
    let refused = env.order(&item, "ann", "k-2", 3).await;
    let problem = &refused.is(400, "invalid_request").body;
    assert_eq!(problem["errors"][0]["pointer"], "/quantity");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("max_per_order")
    );
    let lines = json!({ "orders": [
        { "buyer": "bob", "quantity": 2, "key": "a" }, { "buyer": "bob", "quantity": 3, "key": "b" }
    ] });
    let batch = env.admin(Method::POST, &format!("/v1/items/{item}/orders:batch"));
    let results = Answer::of(batch.json(&lines)).await.body["results"].clone();
    assert_eq!(results[0]["status"], 201);
    assert_eq!(results[1]["status"], 400);
    let shown = env.anyone_gets(&format!("/v1/items/{item}")).await;
    assert_eq!(shown.body["max_per_order"], 2);
    assert_eq!(env.units(&item).await, [5, 4, 0]);
}

#[tested_in(open_each(Options::reconciled()))]
async fn a_wave_is_shown_until_it_is_added_and_can_be_replaced(env: Env) {
    let soon = Timestamp::now() + SignedDuration::from_millis(900);
    let later = "2099-01-01T00:00:00Z";
    let item = json!({ "stock": 1, "waves": [{ "at": later, "units": 50 }] });
    let item = env.create(item).await;
    let path = format!("/v1/items/{item}");
    let shown = env.anyone_gets(&path).await;
    assert_eq!(shown.body["next_wave"], json!({ "at": later, "units": 50 }));
    assert!(shown.body.get("waves").is_none(), "only for admins");
    let patch = env.admin(Method::PATCH, &path);
    let patched = Answer::of(patch.json(&json!({ "waves": [{ "at": soon, "units": 4 }] }))).await;
    assert_eq!(patched.body["waves"][0]["added"], false, "{}", patched.body);
    env.hold(&item, "ann", "k").await;
    let mut tried = 0;
    eventually("an order of the units of the wave", async || {
        tried += 1;
        let key = format!("k-{tried}");
        env.order(&item, "bob", &key, 4).await.status == 201
    })
    .await;
    let shown = env.admin_gets(&path).await;
    assert_eq!(shown.body["waves"][0]["added"], true);
    assert_eq!(shown.body["next_wave"], json!(null));
    assert_eq!(shown.body["stock"], 5);
    assert_eq!(env.journal(&item, "wave").await.len(), 1);
    for (waves, place) in [
        (json!([{ "at": later, "units": 0 }]), "waves[0].units"),
        (json!([{ "at": "soon", "units": 1 }]), "waves[0].at"),
        (
            json!([{ "at": later, "units": 1 }, { "at": later, "units": 1 }]),
            "waves/1",
        ),
        (
            json!([{ "at": later, "units": 1_000_000_000_000_u64 }]),
            "waves/0",
        ),
    ] {
        let refused = env
            .admin(Method::PATCH, &path)
            .json(&json!({ "waves": waves }));
        let refused = Answer::of(refused).await;
        refused.blames(place);
    }
}

#[tested_in(open(Options::default()))]
async fn quotes_around_a_key_do_not_count_and_preferences_are_confirmed(env: Env) {
    let item = env.create(json!({ "stock": 5 })).await;
    let plain = env.order(&item, "ann", "cart-7", 1).await;
    let quoted = env.order(&item, "ann", "\"cart-7\"", 1).await;
    assert_eq!(quoted.is_held().body["id"], plain.is_held().body["id"]);
    assert_eq!(quoted.header("idempotent-replayed"), Some("true"));
    assert_eq!(quoted.header("preference-applied"), None);
    let request = env
        .order_at(0, &item, "ann", "k-2", 1)
        .header("Prefer", "respond-async");
    let answer = Answer::of(request).await;
    assert_eq!(answer.header("preference-applied"), Some("respond-async"));
    let before = Timestamp::now();
    let opens_at = before + SignedDuration::from_secs(3600);
    let later = json!({ "stock": 5, "opens_at": opens_at });
    let later = env.create(later).await;
    let answer = env.order(&later, "ann", "k", 1).await;
    let seconds: u32 = answer
        .is(409, "not_open")
        .header("retry-after")
        .unwrap()
        .parse()
        .unwrap();
    // The order came after `before` and before now. The service rounds up.
    let passed = Timestamp::now().duration_since(before).as_secs() + 1;
    let least = u32::try_from(3600 - passed).unwrap();
    assert!((least..=3601).contains(&seconds), "{seconds}");
}
