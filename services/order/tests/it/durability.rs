//! When an order is acknowledged, and what other instances show of it at that time.

use std::time::Duration;

use serde_json::json;
use testkit::tested_in;

use crate::env::{Answer, Env, Options, known, open, open_each};

#[tested_in(open_each(Options {
    instances: 2,
    recorder: false,
    ..Options::default()
}))]
async fn an_accepted_order_is_answered_before_the_ledger_has_it_and_shown_by_every_instance(
    env: Env,
) {
    // With one segment all buyers share this order's home: it must still be visible to its own
    // buyer only.
    let single = json!({ "stock": 20, "segments": 1, "durability": "accepted" });
    let single = env.create(single).await;
    env.order(&single, "ann", "k", 1).await;
    let item = json!({ "stock": 20, "segments": 4, "durability": "accepted" });
    let item = env.create(item).await;
    let order = env.order(&item, "ann", "k", 1).await;
    for item in [&single, &item] {
        let order = env.order(item, "ann", "k", 1).await;
        assert_eq!((order.status, &order.body["state"]), (202, &json!("held")));
        let path = order.header("location").unwrap();
        for instance in 0..2 {
            for token in [crate::env::token("ann"), crate::env::ADMIN.to_owned()] {
                let request = reqwest::Client::new()
                    .get(env.url(instance, path))
                    .bearer_auth(token);
                let mut shown = Answer::of(request).await;
                // Only admins see it.
                shown.body.as_object_mut().unwrap().remove("buyer");
                assert_eq!(
                    (shown.status, &shown.body),
                    (200, &order.body),
                    "from the segment, not yet from the ledger"
                );
            }
        }
        env.buyer_gets("bob", path).await.is(404, "order_not_found");
    }
    let path = order.header("location").unwrap();
    let again = env.order(&item, "ann", "k", 1).await;
    assert_eq!(
        (
            again.status,
            &again.body,
            again.header("idempotent-replayed")
        ),
        (202, &order.body, Some("true"))
    );
    let audit = env
        .admin_gets(&format!("/v1/items/{item}/audit"))
        .await
        .body;
    assert_eq!(audit["in_flight"], 1);
    assert_eq!(audit["drift"], 0);
    env.start_recorder();
    assert_eq!(env.settled_audit(&item).await["held"], 1);
    let mut shown = env.admin_gets(path).await;
    shown.body.as_object_mut().unwrap().remove("buyer");
    assert_eq!(
        (shown.status, &shown.body),
        (200, &order.body),
        "now from the ledger"
    );
}

#[tested_in(open(Options::default()))]
async fn prefer_respond_async_answers_before_the_ledger_has_the_order(env: Env) {
    let item = env.create(json!({ "stock": 20 })).await;
    for (key, prefer, status) in [
        ("a", "respond-async", 202),
        ("b", "wait=1, Respond-Async", 202),
        ("c", "return=minimal", 201),
    ] {
        let request = env.order_at(0, &item, "ann", key, 1);
        let answer = Answer::of(request.header("Prefer", prefer)).await;
        assert_eq!(answer.status, status, "{prefer}");
        assert!(
            answer
                .header("location")
                .unwrap()
                .starts_with("/v1/orders/")
        );
    }
    let waited = env.order(&item, "ann", "a", 1).await;
    assert_eq!(waited.is_held().header("idempotent-replayed"), Some("true"));
}

#[tested_in(open_each(Options {
    recorder: false,
    order_timeout: Duration::from_secs(1),
    ..Options::default()
}))]
async fn a_recorded_order_is_not_acknowledged_before_the_ledger_has_it(env: Env) {
    let item = env.create(json!({ "stock": 20, "segments": 2 })).await;
    let unknown = env.order(&item, "ann", "k", 1).await;
    assert_eq!(
        unknown.is(503, "outcome_unknown").header("retry-after"),
        Some("1")
    );
    let refused = env.order(&item, "ann", "k", 1).await;
    refused.is(503, "outcome_unknown");
    env.start_recorder();
    env.settled_audit(&item).await;
    let resolved = known(async || env.order(&item, "ann", "k", 1).await).await;
    assert_eq!(
        resolved.is_held().header("idempotent-replayed"),
        Some("true")
    );
    assert_eq!(
        env.settled_audit(&item).await["held"],
        1,
        "all repeats are one order"
    );
}

#[tested_in(open_each(Options::default()))]
async fn the_ledger_rejects_orders_that_redis_sold_beyond_the_stock(env: Env) {
    let item = env.create(json!({ "stock": 5, "segments": 1 })).await;
    // A manual change of the counter.
    let mut cmd = redis::cmd("HINCRBY");
    cmd.arg(format!("stock:{{{item}:0}}"))
        .arg("available")
        .arg(3);
    run(&env.redis_url, &cmd).await;
    let mut held = 0;
    for buyer in 0..10 {
        let answer = env.order(&item, &format!("buyer-{buyer}"), "k", 1).await;
        let again = env.order(&item, &format!("buyer-{buyer}"), "k", 1).await;
        assert_eq!(
            answer.status, again.status,
            "a repeat of a rejected order is rejected too"
        );
        match answer.status {
            201 => held += 1,
            _ => {
                answer.is(409, "sold_out");
            }
        }
    }
    assert_eq!(held, 5);
    let audit = env.settled_audit(&item).await;
    assert_eq!(audit["held"], 5);
    assert_eq!(audit["rejected_orders"], 3);
}

/// Runs a command directly on Redis.
pub async fn run(url: &str, cmd: &redis::Cmd) {
    if let Some(nodes) = url.strip_prefix("redis+cluster://") {
        let nodes = nodes.split(',').map(|node| format!("redis://{node}"));
        let client = redis::cluster::ClusterClient::builder(nodes)
            .connection_timeout(testbed::timeout())
            .response_timeout(testbed::timeout())
            .build()
            .unwrap();
        cmd.exec_async(&mut client.get_async_connection().await.unwrap())
            .await
            .unwrap();
    } else {
        cmd.exec_async(&mut testbed::patient_connection(url).await.unwrap())
            .await
            .unwrap();
    }
}
