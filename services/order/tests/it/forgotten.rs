//! A repeat of an acknowledged order, after a failover that lost what its home had declined.

use std::{sync::Arc, time::Duration};

use domain::{BuyerId, SegmentKey};
use reconciler::ReconcilerSettings;
use reqwest::Method;
use serde_json::{Value, json};
use stock::InspectionEntries;
use testbed::RedisSentinel;
use testkit::{eventually, eventually_some};

use crate::{
    env::{Answer, Options, Stores, TestEnv, held, known, open},
    levels::fail_over,
};

/// The n-th buyer whose home is this one of two segments.
fn buyer_at(home: u16, n: usize) -> String {
    (0..)
        .map(|number| format!("buyer-{number}"))
        .filter(|name| BuyerId::new(name).unwrap().home(2) == home)
        .nth(n)
        .unwrap()
}

fn options(stores: Stores, group: &RedisSentinel) -> Options {
    let checking = ReconcilerSettings {
        confirmation_period: Duration::from_millis(400),
        close_delay: Duration::from_secs(1),
        ..Options::reconciled().reconciler.unwrap()
    };
    Options {
        stores,
        redis_url: Some(group.url()),
        reconciler: Some(checking),
        order_timeout: Duration::from_secs(5),
        ..Options::default()
    }
}

async fn homes_are_checked(env: &TestEnv, item: &str) {
    eventually("a check of both homes", async || {
        for segment in 0..2 {
            let key = SegmentKey {
                item: item.parse().unwrap(),
                segment,
            };
            let stock = &env.engines[0].stock;
            match stock.inspect(&key, InspectionEntries::All).await {
                Ok(inspection) if inspection.checked == inspection.history => {}
                _ => return false,
            }
        }
        true
    })
    .await;
}

async fn send_batch(env: &TestEnv, item: &str, buyers: &[String]) -> Vec<Value> {
    let line = |buyer: &String| json!({ "buyer": buyer, "quantity": 1, "key": "k" });
    let lines: Vec<_> = buyers.iter().map(line).collect();
    let request = env.admin(Method::POST, &format!("/v1/items/{item}/orders:batch"));
    let answer = Answer::of(request.json(&json!({ "orders": lines }))).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body["results"].as_array().unwrap().clone()
}

/// A batch of which each line is decided.
async fn known_batch(env: &TestEnv, item: &str, buyers: &[String]) -> Vec<Value> {
    eventually_some("a decided batch", async || {
        let results = send_batch(env, item, buyers).await;
        let is_decided = results.iter().all(|line| line["status"] != 503);
        is_decided.then_some(results)
    })
    .await
}

/// The order of a result of a batch. A repeat says so, and is the same order.
fn order_of(result: &Value) -> (u64, &Value, &Value) {
    let status = result["status"].as_u64().unwrap();
    (status, &result["id"], &result["state"])
}

/// Home forgets its declines, and no check of it ends in this test. Orders alone, in batches and in
/// carts are what they were, and strangers are refused.
async fn no_decline_that_was_lost_is_told_as_sold_out(stores: Stores) {
    let mut group = RedisSentinel::start(1).await.unwrap();
    let mut options = options(stores, &group);
    if let Some(reconciler) = &mut options.reconciler {
        reconciler.close_delay = Duration::from_secs(3600);
    }
    open(options, async |env: Arc<TestEnv>| {
        let item = env.create(json!({ "stock": 12, "segments": 2 })).await;
        for n in 0..6 {
            held(&env, &item, &buyer_at(1, n)).await;
        }
        env.settled_audit(&item).await;
        group.servers()[0].is_followed_by(1).await.unwrap();
        group.servers()[1].lag().await.unwrap();
        // Their home is empty, so the other segment sells them its units.
        let (ann, bob, cleo) = (buyer_at(1, 6), buyer_at(1, 7), buyer_at(1, 8));
        let anns = held(&env, &item, &ann).await;
        let bobs = held(&env, &item, &bob).await;
        let of_batch: Vec<_> = (9..12).map(|n| buyer_at(1, n)).collect();
        let batch = known_batch(&env, &item, &of_batch).await;
        let cart = known(async || env.cart(&cleo, "cart", &[(&item, 1)]).await).await;
        cart.is_held();

        fail_over(&mut group, &env).await;
        eventually("the other segment's repair", async || {
            let path = format!("/v1/items/{item}/audit");
            let audit = env.admin_gets(&path).await;
            audit.status == 200 && audit.body["drift"] == 0 && audit.body["in_flight"] == 0
        })
        .await;
        let stock = &env.engines[0].stock;
        let home = SegmentKey {
            item: item.parse().unwrap(),
            segment: 1,
        };
        let inspection = stock.inspect(&home, InspectionEntries::All).await.unwrap();
        assert_ne!(inspection.checked, inspection.history, "home is unchecked");
        for state in ["open", "paused"] {
            if state == "paused" {
                env.put_state(&item, state).await;
            }
            let code = match state {
                "open" => "sold_out",
                _ => "not_open",
            };
            for (home, n) in [(0, 0), (1, 20)] {
                let late = buyer_at(home, n);
                // For a moment after the pause the sold-out cache still answers.
                eventually(code, async || {
                    let answer = known(async || env.order(&item, &late, state, 1).await).await;
                    assert_eq!(answer.status, 409, "{answer:?}");
                    answer.body["code"] == code
                })
                .await;
            }
            for (buyer, before) in [(&ann, &anns), (&bob, &bobs)] {
                let again = known(async || env.order(&item, buyer, "k", 1).await).await;
                assert_eq!((again.status, &again.body), (201, &before.body), "{state}");
            }
            let again = known_batch(&env, &item, &of_batch).await;
            for (again, before) in again.iter().zip(&batch) {
                assert_eq!(order_of(again), order_of(before), "{state}");
            }
            let again = known(async || env.cart(&cleo, "cart", &[(&item, 1)]).await).await;
            assert_eq!(again.is_held().body["id"], cart.body["id"], "{state}");
        }
        let late = known(async || env.cart(&buyer_at(0, 1), "cart", &[(&item, 1)]).await).await;
        late.is(409, "not_open");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_decline_that_was_lost_is_told_as_sold_out_with_sqlite() {
    no_decline_that_was_lost_is_told_as_sold_out(Stores::Small).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_decline_that_was_lost_is_told_as_sold_out_with_postgres() {
    no_decline_that_was_lost_is_told_as_sold_out(Stores::Postgres).await;
}

async fn a_repeat_is_the_order_that_was_acknowledged(stores: Stores) {
    let mut group = RedisSentinel::start(1).await.unwrap();
    open(options(stores, &group), async |env: Arc<TestEnv>| {
        let item = env.create(json!({ "stock": 4, "segments": 2 })).await;
        for n in 0..2 {
            held(&env, &item, &buyer_at(1, n)).await;
        }
        env.settled_audit(&item).await;
        group.servers()[0].is_followed_by(1).await.unwrap();
        group.servers()[1].lag().await.unwrap();
        // Their home is empty, so the other segment sells them its units.
        let (ann, bob) = (buyer_at(1, 2), buyer_at(1, 3));
        let anns = held(&env, &item, &ann).await;
        let bobs = held(&env, &item, &bob).await;

        fail_over(&mut group, &env).await;
        homes_are_checked(&env, &item).await;
        let late = known(async || env.order(&item, &buyer_at(0, 0), "k", 1).await).await;
        late.is(409, "sold_out");
        let again = known(async || env.order(&item, &ann, "k", 1).await).await;
        assert_eq!((again.status, &again.body), (201, &anns.body));
        env.put_state(&item, "paused").await;
        let again = known(async || env.order(&item, &bob, "k", 1).await).await;
        assert_eq!((again.status, &again.body), (201, &bobs.body));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_is_the_order_that_was_acknowledged_with_sqlite() {
    a_repeat_is_the_order_that_was_acknowledged(Stores::Small).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_is_the_order_that_was_acknowledged_with_postgres() {
    a_repeat_is_the_order_that_was_acknowledged(Stores::Postgres).await;
}
