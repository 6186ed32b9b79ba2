//! Stores that do not answer.

use std::time::Duration;

use futures::future::join_all;
use reqwest::Method;
use serde_json::json;
use testbed::Redis;

use crate::{
    durability::run,
    shop::{Answer, Options, Shop, open},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_redis_makes_outcomes_unknown_and_the_same_keys_resolve_them() {
    let redis = Redis::start().await.unwrap();
    let options = Options {
        redis_url: Some(redis.url()),
        order_within: Duration::from_millis(900),
        ..Options::default()
    };
    open(options, async |shop| {
        let item = shop
            .create(json!({ "stock": 50, "segments": 3, "limit_per_buyer": 1 }))
            .await;
        shop.order(&item, "warm", "k", 1).await.is_held();
        redis.pause().await.unwrap();
        let order = |buyer: usize| {
            let shop = &shop;
            let item = &item;
            async move { shop.order(item, &format!("buyer-{buyer}"), "k", 1).await }
        };
        for answer in join_all((0..20).map(order)).await {
            assert_eq!(
                answer.is(503, "outcome_unknown").header("retry-after"),
                Some("1")
            );
        }
        Answer::of(shop.anyone(Method::GET, "/readyz"))
            .await
            .is(503, "unavailable");
        redis.resume().await.unwrap();
        for buyer in 0..20 {
            order(buyer).await.is_held();
        }
        assert_eq!(shop.settled_audit(&item).await["held"], 21);
        assert_eq!(
            Answer::of(shop.anyone(Method::GET, "/readyz")).await.status,
            200
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_stop_of_redis_is_not_noticed_but_by_the_clock() {
    let redis = Redis::start().await.unwrap();
    open(
        Options {
            redis_url: Some(redis.url()),
            ..Options::default()
        },
        async |shop| {
            let item = shop.create(json!({ "stock": 50, "segments": 3 })).await;
            redis.pause().await.unwrap();
            let orders = join_all((0..20).map(|buyer| {
                Answer::of(shop.order_at(0, &item, &format!("buyer-{buyer}"), "k", 1))
            }));
            let resume = async {
                // Longer than the time after which a reply is asked for again.
                tokio::time::sleep(Duration::from_millis(700)).await;
                redis.resume().await.unwrap();
            };
            let (answers, ()) = tokio::join!(orders, resume);
            for answer in answers {
                answer.is_held();
            }
            assert_eq!(
                shop.settled_audit(&item).await["held"],
                20,
                "asked for twice, taken once"
            );
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_redis_has_lost_its_scripts_and_no_order() {
    let mut redis = Redis::start().await.unwrap();
    let options = Options {
        redis_url: Some(redis.url()),
        ..Options::default()
    };
    let shop_test = async |shop: std::sync::Arc<crate::shop::Shop>, redis: &mut Redis| {
        let item = shop.create(json!({ "stock": 50, "segments": 3 })).await;
        let before = shop.order(&item, "ann", "k", 1).await;
        redis.kill().await.unwrap();
        redis.restart().await.unwrap();
        let replay = shop.order(&item, "ann", "k", 1).await;
        assert_eq!(replay.is_held().body, before.body);
        shop.order(&item, "bob", "k", 1).await.is_held();
        run(&redis.url(), redis::cmd("SCRIPT").arg("FLUSH")).await;
        shop.order(&item, "carol", "k", 1).await.is_held();
    };
    open(options, |shop| shop_test(shop, &mut redis)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_message_costs_time_and_no_order() {
    let redis = Redis::start().await.unwrap();
    open(
        Options {
            redis_url: Some(redis.url()),
            ..Options::default()
        },
        async |shop| {
            let item = shop.create(json!({ "stock": 50, "segments": 3 })).await;
            for buyer in 0..6 {
                // Cuts every subscription: wake-ups and checkpoints of the next orders may be lost.
                run(
                    &redis.url(),
                    redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub"),
                )
                .await;
                shop.order(&item, &format!("buyer-{buyer}"), "k", 1)
                    .await
                    .is_held();
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_rejected_is_never_told_held_when_its_message_is_lost() {
    let redis = Redis::start().await.unwrap();
    // The recorder is a process of its own here, so that the order service's subscription can be cut alone.
    open(
        Options {
            redis_url: Some(redis.url()),
            instances: 2,
            ..Options::default()
        },
        async |shop| {
            for round in 0..4 {
                let item = shop.create(json!({ "stock": 1, "segments": 1 })).await;
                shop.order(&item, "ann", "k", 1).await.is_held();
                let mut oversell = redis::cmd("HINCRBY");
                run(
                    &redis.url(),
                    oversell
                        .arg(format!("stock:{{{item}:0}}"))
                        .arg("available")
                        .arg(6),
                )
                .await;
                run(
                    &redis.url(),
                    redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub"),
                )
                .await;
                let early = (0..3).map(|buyer| {
                    Answer::of(shop.order_at(1, &item, &format!("early-{buyer}"), "k", 1))
                });
                // These come when the subscription stands again: the message about them must say nothing about the earlier ones.
                let late = async {
                    tokio::time::sleep(Duration::from_millis(190 + 10 * round)).await;
                    join_all((0..3).map(|buyer| {
                        Answer::of(shop.order_at(1, &item, &format!("late-{buyer}"), "k", 1))
                    }))
                    .await
                };
                let (early, late) = tokio::join!(join_all(early), late);
                for answer in early.iter().chain(&late) {
                    answer.is(409, "sold_out");
                }
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_whose_redis_lost_everything_does_not_start_again_with_all_units() {
    let redis = Redis::start().await.unwrap();
    open(
        Options {
            redis_url: Some(redis.url()),
            ..Options::default()
        },
        async |shop| {
            let body = json!({ "stock": 2, "durability": "accepted" });
            let item = shop.create(body.clone()).await;
            for buyer in ["ann", "bob"] {
                assert_eq!(shop.order(&item, buyer, "k", 1).await.status, 202);
            }
            shop.settled_audit(&item).await;
            run(&redis.url(), &redis::cmd("FLUSHALL")).await;
            let mut same = body;
            same["id"] = json!(item);
            Answer::of(shop.admin(Method::POST, "/items").json(&same)).await;
            for buyer in ["carol", "dan"] {
                assert_eq!(
                    shop.order(&item, buyer, "k", 1).await.status,
                    503,
                    "nobody knows what was sold"
                );
            }
            let report = shop.audit_without_http(&item).await;
            assert!(
                report.drift > 0 && report.oversold == 0 && report.held == 2,
                "{report:?}"
            );
            shop.forget_item(&item);
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_state_that_did_not_reach_redis_is_caught_up_with() {
    let mut redis = Redis::start().await.unwrap();
    let options = Options {
        redis_url: Some(redis.url()),
        order_within: Duration::from_secs(1),
        ..Options::default()
    };
    let shop_test = async |shop: std::sync::Arc<crate::shop::Shop>, redis: &mut Redis| {
        let item = shop.create(json!({ "stock": 500, "segments": 3 })).await;
        shop.order(&item, "ann", "k", 1).await.is_held();
        redis.kill().await.unwrap();
        let paused = shop
            .admin(Method::PUT, &format!("/items/{item}/state"))
            .json(&json!({ "state": "paused" }));
        Answer::of(paused).await.is(503, "unavailable");
        redis.restart().await.unwrap();
        let since = std::time::Instant::now();
        for attempt in 0.. {
            let answer = shop.order(&item, "bob", &format!("k-{attempt}"), 1).await;
            if answer.code() == "not_open" {
                break;
            }
            assert!(
                since.elapsed() < Duration::from_secs(10),
                "it still sells: {answer:?}"
            );
        }
    };
    open(options, |shop| shop_test(shop, &mut redis)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_redis_has_forgotten_is_not_called_sold_out_while_the_ledger_has_it() {
    open(Options::default(), async |shop| {
        let item = shop.create(json!({ "stock": 5, "segments": 2 })).await;
        let before = shop.order(&item, "ann", "k", 2).await;
        shop.order(&item, "bob", "takes-what-would-be-taken-again", 2)
            .await
            .is_held();
        let id: domain::OrderId = before.is_held().body["id"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        forget(&shop, &item, id).await;
        let repeat = shop.order(&item, "ann", "k", 2).await;
        assert_eq!(repeat.is_held().body["id"], before.body["id"]);
        forget(&shop, &item, id).await;
        shop.order(&item, "ann", "k", 3)
            .await
            .is(422, "idempotency_key_reused");
        shop.order(&item, "ann", "another", 2)
            .await
            .is(409, "sold_out");
        assert_eq!(shop.settled_audit(&item).await["held"], 4);
    })
    .await;
}

/// What a failover to a replica that lagged does to an answer.
async fn forget(shop: &Shop, item: &str, order: domain::OrderId) {
    for segment in 0..2 {
        let answers = format!("answers:{{{item}:{segment}}}");
        run(
            &shop.redis_url,
            redis::cmd("HDEL").arg(answers).arg(&order.as_bytes()[..]),
        )
        .await;
    }
}
