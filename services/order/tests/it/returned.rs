//! Released units can be bought immediately, also at instances that have the item in the sold-out
//! cache.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{eventually_some, tested_in};

use crate::env::{Answer, Env, Options, SHORT_HOLDS, TestEnv, open_each};

/// Far longer than the test: no instance refreshes its sold-out cache by time.
const SOLD_OUT_CACHE_TTL: Duration = Duration::from_secs(24 * 3600);

/// Orders at every instance, which come before the units are released.
async fn early_orders(env: &TestEnv, item: &str) -> Vec<Answer> {
    let mut answers = Vec::new();
    for instance in 0..env.urls.len() {
        for n in 0..3 {
            let buyer = format!("early-{instance}-{n}");
            answers.push(Answer::of(env.order_at(instance, item, &buyer, "k", 1)).await);
        }
    }
    answers
}

/// Asserts that every instance sheds orders from its sold-out cache.
async fn sold_out_everywhere(env: &TestEnv, item: &str) {
    for early in early_orders(env, item).await {
        early.is(409, "sold_out");
    }
}

/// The notification of the released units may still be in flight, so this retries shortly. The
/// sold-out cache alone would shed for a day.
async fn is_bought_at(env: &TestEnv, instance: usize, item: &str, what: &str) -> String {
    let mut attempt = 0_u32;
    let buyer = format!("{what}-{instance}");
    let what = format!("{what}: an order at instance {instance} that is not sold out");
    eventually_some(&what, async || {
        attempt += 1;
        let key = format!("k-{attempt}");
        let answer = Answer::of(env.order_at(instance, item, &buyer, &key, 1)).await;
        if answer.status != 201 {
            answer.is(409, "sold_out");
            return None;
        }
        answer.body["id"].as_str().map(str::to_owned)
    })
    .await
}

#[tested_in(open_each(Options {
    instances: 3,
    sold_out_cache_ttl: SOLD_OUT_CACHE_TTL,
    ..Options::reconciled()
}))]
async fn released_units_can_be_bought_immediately_at_every_instance(env: Env) {
    let item = json!({ "stock": 1, "segments": 2, "limit_per_buyer": 1 });
    let item = env.create(item).await;
    let mut order = env.hold(&item, "ann", "k").await;
    sold_out_everywhere(&env, &item).await;
    env.cancel_at(0, "ann", &order).await.is_now("cancelled");
    order = is_bought_at(&env, 2, &item, "cancelled").await;
    sold_out_everywhere(&env, &item).await;
    env.confirm(&order, "pay-1").await;
    sold_out_everywhere(&env, &item).await;
    env.refund_at(1, &order).await.is_now("refunded");
    is_bought_at(&env, 0, &item, "refunded").await;
    sold_out_everywhere(&env, &item).await;
}

#[tested_in(open_each(Options {
    instances: 2,
    sold_out_cache_ttl: SOLD_OUT_CACHE_TTL,
    ..Options::reconciled()
}))]
async fn expired_units_can_be_bought_at_every_instance(env: Env) {
    for hold in SHORT_HOLDS {
        let item = json!({ "stock": 2, "segments": 2, "hold_seconds": hold });
        let item = env.create(item).await;
        let began = Instant::now();
        let ann = env.order(&item, "ann", "k", 1).await;
        let bob = env.order(&item, "bob", "k", 1).await;
        let early = early_orders(&env, &item).await;
        // On a busy machine a hold may have ended meanwhile: then the test tries a longer one.
        if began.elapsed() >= Duration::from_secs(hold.into()) {
            let mut statuses = early.iter().chain([&ann, &bob]).map(|answer| answer.status);
            assert!(
                statuses.all(|status| [201, 409, 503].contains(&status)),
                "{early:?}"
            );
            continue;
        }
        let orders = [ann.is_held().id(), bob.is_held().id()];
        for early in early {
            early.is(409, "sold_out");
        }
        for order in &orders {
            env.becomes(order, "expired").await;
        }
        for instance in 0..2 {
            is_bought_at(&env, instance, &item, "expired").await;
        }
        return;
    }
    panic!("no refusal came before the end of a hold");
}

#[tested_in(open_each(Options {
    instances: 2,
    sold_out_cache_ttl: SOLD_OUT_CACHE_TTL,
    ..Options::reconciled()
}))]
async fn added_units_can_be_bought_at_every_instance(env: Env) {
    let item = env.create(json!({ "stock": 0, "segments": 2 })).await;
    sold_out_everywhere(&env, &item).await;
    let added = env.move_stock(0, &item, "k", &json!({ "add": 2 })).await;
    assert_eq!((added.status, &added.body["available"]), (200, &json!(2)));
    for instance in [1, 0] {
        is_bought_at(&env, instance, &item, "new").await;
    }
}
