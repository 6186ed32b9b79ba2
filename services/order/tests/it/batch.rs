//! A batch is as many single orders: each line has its own key, its own result, and no other.

use std::{collections::BTreeSet, time::Duration};

use client::{Client, IdempotencyKey, OrderBatcher, ProblemCode, Token};
use futures::future::join_all;
use order::Limits;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::tested_in;

use crate::env::{ADMIN, Answer, Env, Options, TestEnv, open, open_each, patient};

fn line(buyer: &str, key: &str, quantity: u32) -> Value {
    json!({ "buyer": buyer, "key": key, "quantity": quantity })
}

async fn send(env: &TestEnv, instance: usize, item: &str, body: &Value) -> Answer {
    let request = env.at(
        instance,
        Method::POST,
        &format!("/v1/items/{item}/orders:batch"),
    );
    Answer::of(request.bearer_auth(ADMIN).json(body)).await
}

/// The results of these orders.
async fn place(env: &TestEnv, instance: usize, item: &str, lines: &[Value]) -> Vec<Value> {
    let answer = send(env, instance, item, &json!({ "orders": lines })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let results = answer.body["results"].as_array().unwrap().clone();
    assert_eq!(results.len(), lines.len(), "{answer:?}");
    results
}

/// Status, and the state or the code.
fn outcome(result: &Value) -> (u64, &str) {
    let status = result["status"].as_u64().unwrap();
    let name = if status < 300 { "state" } else { "code" };
    (status, result[name].as_str().unwrap())
}

#[tested_in(open_each(Options::default()))]
async fn each_line_has_the_result_that_it_would_have_alone(env: Env) {
    let item = json!({ "stock": 10, "limit_per_buyer": 2 });
    let item = env.create(item).await;
    let single = env.order(&item, "dan", "k", 1).await;
    let lines = [
        line("ann", "k", 2),
        line("bob", "k", 3),
        line("dan", "k", 1),
        line("dan", "k", 2),
        line("a\nb", "k", 1),
        line("cleo", "", 1),
        line("cleo", "k", 0),
        json!({ "buyer": "cleo", "quantity": 1 }),
        json!({ "buyer": "cleo", "quantity": 1, "key": "k", "colour": "red" }),
        json!(["cleo", 1]),
        json!(7),
        line("安娜", "k", 1),
    ];
    let results = place(&env, 0, &item, &lines).await;
    let expected = [
        (201, "held"),
        (409, "buyer_limit_reached"),
        (201, "held"),
        (422, "idempotency_key_reused"),
        (400, "invalid_request"),
        (400, "invalid_request"),
        (400, "invalid_request"),
        (400, "invalid_request"),
        (400, "invalid_request"),
        (400, "invalid_request"),
        (400, "invalid_request"),
        (201, "held"),
    ];
    assert_eq!(results.iter().map(outcome).collect::<Vec<_>>(), expected);
    let fields: Vec<_> = results[3..9]
        .iter()
        .map(|result| &result["field"])
        .collect();
    assert_eq!(fields, ["key", "buyer", "key", "quantity", "key", "colour"]);
    let mut replayed = single.body.clone();
    replayed["status"] = json!(201);
    replayed["replayed"] = json!(true);
    assert_eq!(results[2], replayed);
    assert_eq!(results[0]["replayed"], false);

    let again = env.order(&item, "ann", "k", 2).await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.is_held().body["id"], results[0]["id"]);
    let left = env.admin_gets(&format!("/v1/items/{item}")).await;
    assert_eq!(left.body["available"], 6);
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn a_repeated_batch_has_the_same_orders(env: Env) {
    let item = env.create(json!({ "stock": 300, "segments": 2 })).await;
    let lines: Vec<_> = (0..512)
        .map(|buyer| line(&format!("buyer-{buyer}"), "k", 1))
        .collect();
    let [first, second] = {
        let results = join_all((0..2).map(|instance| place(&env, instance, &item, &lines))).await;
        <[_; 2]>::try_from(results).unwrap()
    };
    let third = place(&env, 1, &item, &lines).await;
    for ((first, second), third) in first.iter().zip(&second).zip(&third) {
        assert_eq!(outcome(first), outcome(third));
        assert_eq!((&first["id"], &second["id"]), (&third["id"], &third["id"]));
        assert!(third["replayed"].as_bool().unwrap_or(true));
    }
    let held = first.iter().filter(|result| result["status"] == 201);
    assert_eq!(held.count(), 300);
    let refused = first.iter().find(|result| result["status"] == 409).unwrap();
    assert_eq!(outcome(refused), (409, "sold_out"));
}

#[tested_in(open_each(Options::default()))]
async fn the_same_order_twice_in_a_batch_is_one_order(env: Env) {
    let item = env.create(json!({ "stock": 10 })).await;
    let twice = [line("ann", "k", 2), line("ann", "k", 2)];
    let results = place(&env, 0, &item, &twice).await;
    assert_eq!(results[0]["id"], results[1]["id"], "{results:?}");
    let mixed: Vec<_> = (1..=4).map(|quantity| line("bob", "k", quantity)).collect();
    let results = place(&env, 0, &item, &mixed).await;
    let mut outcomes: Vec<_> = results.iter().map(outcome).collect();
    outcomes.sort_unstable();
    let reused = (422, "idempotency_key_reused");
    assert_eq!(outcomes, [(201, "held"), reused, reused, reused]);
    let bobs = results
        .iter()
        .find(|result| result["status"] == 201)
        .unwrap();
    let shown = env.admin_gets(&format!("/v1/items/{item}")).await;
    let taken = 2 + bobs["quantity"].as_u64().unwrap();
    assert_eq!(shown.body["available"], 10 - taken);
}

#[tested_in(open(Options::default()))]
async fn a_batch_that_cannot_be_read_places_no_order(env: Env) {
    let item = env.create(json!({ "stock": 1000 })).await;
    let lines = |count| {
        (0..count)
            .map(|n| line(&format!("b-{n}"), "k", 1))
            .collect::<Vec<_>>()
    };
    let table = [
        (json!({ "orders": [] }), "/orders"),
        (json!({ "orders": lines(513) }), "/orders"),
        (json!({}), "/orders"),
        (json!({ "orders": {} }), "/orders"),
        (json!({ "orders": lines(1), "colour": "red" }), "/colour"),
        (json!([]), ""),
    ];
    for (body, pointer) in table {
        let answer = send(&env, 0, &item, &body).await;
        answer.is(400, "invalid_request");
        let found = answer.body["errors"][0]["pointer"].as_str();
        assert_eq!(found.unwrap_or_default(), pointer, "{answer:?}");
    }
    let large = json!({ "orders": [line(&"x".repeat(600_000), "k", 1)] });
    let refused = send(&env, 0, &item, &large).await;
    refused.is(413, "payload_too_large");
    let one = json!({ "orders": lines(1) });
    let refused = send(&env, 0, "no-such-item", &one).await;
    refused.is(404, "item_not_found");
    let path = format!("/v1/items/{item}/orders:batch");
    let buyer = env.buyer("ann", Method::POST, &path).json(&one);
    Answer::of(buyer).await.is(403, "forbidden");
    env.admin_gets(&path).await.is(405, "method_not_allowed");
    let shown = env.admin_gets(&format!("/v1/items/{item}")).await;
    assert_eq!(shown.body["available"], 1000);

    let longest = (0..512).map(|n| line(&format!("{n:é>63}"), &format!("{n:\"<255}"), 1));
    let results = place(&env, 0, &item, &longest.collect::<Vec<_>>()).await;
    assert!(
        results
            .iter()
            .all(|result| outcome(result) == (201, "held")),
        "{:?}",
        results[0]
    );
}

#[tested_in(open(Options::default()))]
async fn a_batch_is_answered_early_if_the_request_or_the_item_says_so(env: Env) {
    let batch = json!({ "orders": [line("ann", "k", 1), line("bob", "k", 1)] });
    for (durability, prefer, status) in [
        ("recorded", "wait=5", 201),
        ("recorded", "respond-async", 202),
        ("accepted", "wait=5", 202),
    ] {
        let item = json!({ "stock": 5, "durability": durability });
        let item = env.create(item).await;
        let request = env
            .admin(Method::POST, &format!("/v1/items/{item}/orders:batch"))
            .header("Prefer", prefer)
            .json(&batch);
        let answer = Answer::of(request).await;
        for result in answer.body["results"].as_array().unwrap() {
            assert_eq!(outcome(result), (status, "held"), "{durability}, {prefer}");
        }
    }
}

#[tested_in(open_each(Options::default().with_instances(2)))]
async fn concurrent_batches_sell_every_unit_once(env: Env) {
    let item = env.create(json!({ "stock": 500, "segments": 3 })).await;
    let batches = join_all((0..8).map(|batch| {
        let lines: Vec<_> = (0..128)
            .map(|n| line(&format!("buyer-{batch}-{n}"), "k", 1))
            .collect();
        let (env, item) = (&env, &item);
        async move { place(env, batch % 2, item, &lines).await }
    }))
    .await;
    let results: Vec<_> = batches.iter().flatten().collect();
    let held = results
        .iter()
        .filter(|result| outcome(result) == (201, "held"));
    let ids: BTreeSet<_> = held.map(|result| result["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 500);
    let refused = results
        .iter()
        .filter(|result| outcome(result) == (409, "sold_out"));
    assert_eq!(refused.count(), 8 * 128 - 500);
}

#[tested_in(open(Options {
    instances: 2,
    limits: Limits {
        // The batches have a bound of their own.
        body_bytes: 1024,
        ..patient()
    },
    ..Options::default()
}))]
async fn the_client_sends_concurrent_orders_as_batches(env: Env) {
    let item = json!({ "stock": 900, "limit_per_buyer": 1 });
    let item = env.create(item).await;
    let client = Client::builder(env.urls.clone()).build().unwrap();
    let admin = client.admin(Token::bearer(ADMIN).unwrap());
    let batcher = OrderBatcher::new(&admin, &*item);
    let key = IdempotencyKey::new("k").unwrap();
    let orders = (0..1500).map(|buyer| {
        let (batcher, key) = (batcher.clone(), key.clone());
        async move { batcher.order(&format!("buyer-{buyer}"), 1, key).await }
    });
    let placed = join_all(orders).await;
    let ids: BTreeSet<_> = placed
        .iter()
        .flatten()
        .map(|placed| placed.order.id)
        .collect();
    assert_eq!(ids.len(), 900);
    let refused = placed.iter().filter_map(|placed| placed.as_ref().err());
    assert!(
        refused
            .into_iter()
            .all(|error| error.is(ProblemCode::SoldOut))
    );

    let buyer = placed.iter().position(|placed| placed.is_ok()).unwrap();
    let again = batcher
        .order(&format!("buyer-{buyer}"), 1, key)
        .await
        .unwrap();
    assert!(again.replayed && again.recorded);
    assert_eq!(
        Some(again.order),
        placed[buyer]
            .as_ref()
            .ok()
            .map(|placed| placed.order.clone())
    );
    let other = batcher
        .order(&format!("buyer-{buyer}"), 1, IdempotencyKey::random())
        .await;
    let error = other.unwrap_err();
    assert!(
        error.is(ProblemCode::SoldOut) || error.is(ProblemCode::BuyerLimitReached),
        "{error}"
    );
}

/// Far longer than the test: no instance refreshes its sold-out cache by time.
const SOLD_OUT_CACHE_TTL: Duration = Duration::from_secs(24 * 3600);

/// A refusal without a record says nothing about a lost request with the same key.
#[tested_in(open_each(Options {
    sold_out_cache_ttl: SOLD_OUT_CACHE_TTL,
    ..Options::default()
}))]
async fn a_refusal_that_left_no_record_is_not_final(env: Env) {
    let not_final = json!(false);
    let vase = env.create(json!({ "stock": 1, "segments": 1 })).await;
    env.hold(&vase, "bob", "k").await;
    let shed = env.order(&vase, "eve", "k", 1).await;
    assert_eq!(shed.is(409, "sold_out").body["final"], not_final);
    let lines = place(&env, 0, &vase, &[line("eve", "k", 1)]).await;
    assert_eq!(outcome(&lines[0]), (409, "sold_out"));
    assert_eq!(lines[0]["final"], not_final);

    let bowl = json!({ "stock": 9, "segments": 1, "limit_per_buyer": 1 });
    let bowl = env.create(bowl).await;
    env.hold(&bowl, "bob", "k").await;
    let second = env.order(&bowl, "bob", "another", 1).await;
    assert_eq!(
        second.is(409, "buyer_limit_reached").body["final"],
        not_final
    );

    let late = json!({ "stock": 9, "opens_at": "2099-01-01T00:00:00Z" });
    let late = env.create(late).await;
    let early = env.order(&late, "ann", "k", 1).await;
    assert_eq!(early.is(409, "not_open").body["final"], not_final);
    let lines = place(&env, 0, &late, &[line("ann", "k", 1)]).await;
    assert_eq!(lines[0]["final"], not_final);
}
