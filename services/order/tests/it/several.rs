//! Several items in one read.

use reqwest::Method;
use serde_json::{Value, json};
use testkit::{eventually, tested_in};

use crate::env::{Answer, Env, Options, TestEnv, on_both_ledgers};

impl TestEnv {
    async fn items_named(&self, ids: &str) -> Answer {
        let path = format!("/v1/items:batch?ids={ids}");
        self.anyone_gets(&path).await
    }
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn several_items_are_shown_in_the_order_of_the_request_and_unknown_names_are_told(env: Env) {
    let vase = env.create(json!({ "stock": 5, "segments": 3 })).await;
    let jar = env.create(json!({ "stock": 7, "price": 3 })).await;
    let asked = format!("{vase},none,{jar},{vase},no%20name");
    let both = env.items_named(&asked).await;
    assert_eq!(both.header("cache-control"), Some("public, max-age=1"));
    let mut alone = Vec::new();
    for item in [&vase, &jar] {
        let shown = env.anyone(Method::GET, &format!("/v1/items/{item}"));
        alone.push(Answer::of(shown).await.body);
    }
    let expected = json!({ "data": alone, "unknown": ["none", "no name"], "unavailable": [] });
    assert_eq!((both.status, &both.body), (200, &expected));
    let none = env.items_named("none").await;
    assert_eq!((none.status, &none.body["data"]), (200, &json!([])));
    env.order(&vase, "ann", "k", 2).await.is_held();
    eventually("the view of the order's unit", async || {
        let shown = env.items_named(&asked).await.body;
        let units = |name| shown["data"][0][name].as_u64();
        (units("available"), units("held")) == (Some(3), Some(2))
    })
    .await;
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn a_bad_list_of_ids_is_refused(env: Env) {
    let many: Vec<_> = (0..101).map(|n| format!("item-{n}")).collect();
    let many = format!("ids={}", many.join(","));
    for query in [
        "",
        "ids=",
        "ids=a,,b",
        "ids=a&ids=b",
        "ids=a&limit=1",
        &many,
    ] {
        let path = format!("/v1/items:batch?{query}");
        let refused = env.anyone_gets(&path).await;
        refused.is(400, "invalid_request");
        assert_eq!(refused.body["errors"][0]["pointer"], "/ids", "{query}");
    }
}

#[tested_in(on_both_ledgers(Options::default()))]
async fn an_item_that_cannot_be_read_does_not_hide_the_others(env: Env) {
    let vase = env.create(json!({ "stock": 5, "segments": 1 })).await;
    let jar = env.create(json!({ "stock": 7 })).await;
    let mut redis = testbed::patient_connection(&env.redis_url).await.unwrap();
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg(format!("*{{{vase}:0}}*"))
        .query_async(&mut redis)
        .await
        .unwrap();
    assert!(!keys.is_empty());
    let mut lose = redis::cmd("DEL");
    let () = lose.arg(keys).query_async(&mut redis).await.unwrap();
    let both = env.items_named(&format!("{vase},{jar}")).await;
    let ids = |list: &Value| list.as_array().unwrap().len();
    assert_eq!((both.status, ids(&both.body["data"])), (200, 1));
    assert_eq!(both.body["unavailable"], json!([vase]));
    assert!(env.items_named(&vase).await.status >= 500);
    env.forget_item(&vase);
}
