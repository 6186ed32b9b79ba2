//! Stores that do not answer.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use testbed::Redis;
use testkit::{eventually, tested_in};

use crate::{
    durability::run,
    env::{Answer, Env, Options, TestEnv, known, open},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_redis_makes_outcomes_unknown_and_the_same_keys_resolve_them() {
    let redis = Redis::start().await.unwrap();
    let options = Options {
        redis_url: Some(redis.url()),
        order_timeout: Duration::from_secs(2),
        ..Options::default()
    };
    open(options, async |env| {
        let item = json!({ "stock": 50, "segments": 3, "limit_per_buyer": 1 });
        let item = env.create(item).await;
        let placed = known(async || env.order(&item, "warm", "k", 1).await).await;
        placed.is_held();
        redis.pause().await.unwrap();
        let order = |buyer: usize| {
            let env = &env;
            let item = &item;
            async move { env.order(item, &format!("buyer-{buyer}"), "k", 1).await }
        };
        for answer in join_all((0..20).map(order)).await {
            assert_eq!(
                answer.is(503, "outcome_unknown").header("retry-after"),
                Some("1")
            );
        }
        env.becomes_unready().await.is(503, "unavailable");
        redis.resume().await.unwrap();
        for buyer in 0..20 {
            known(async || order(buyer).await).await.is_held();
        }
        assert_eq!(env.settled_audit(&item).await["held"], 21);
        env.becomes_ready().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_stop_of_redis_only_delays_orders() {
    let redis = Redis::start().await.unwrap();
    open(
        Options {
            redis_url: Some(redis.url()),
            ..Options::default()
        },
        async |env| {
            let item = env.create(json!({ "stock": 50, "segments": 3 })).await;
            redis.pause().await.unwrap();
            let orders = join_all((0..20).map(|buyer| {
                Answer::of(env.order_at(0, &item, &format!("buyer-{buyer}"), "k", 1))
            }));
            let resume = async {
                // Longer than the time after which a request is repeated.
                tokio::time::sleep(Duration::from_millis(700)).await;
                redis.resume().await.unwrap();
            };
            let (answers, ()) = tokio::join!(orders, resume);
            for answer in answers {
                answer.is_held();
            }
            assert_eq!(
                env.settled_audit(&item).await["held"],
                20,
                "requested twice, taken once"
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
    let env_test = async |env: std::sync::Arc<crate::env::TestEnv>, redis: &mut Redis| {
        let item = env.create(json!({ "stock": 50, "segments": 3 })).await;
        let before = env.order(&item, "ann", "k", 1).await;
        redis.kill().await.unwrap();
        redis.restart().await.unwrap();
        let replay = env.order(&item, "ann", "k", 1).await;
        assert_eq!(replay.is_held().body, before.body);
        env.order(&item, "bob", "k", 1).await.is_held();
        run(&redis.url(), redis::cmd("SCRIPT").arg("FLUSH")).await;
        env.order(&item, "carol", "k", 1).await.is_held();
    };
    open(options, |env| env_test(env, &mut redis)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_notification_costs_time_and_no_order() {
    let redis = Redis::start().await.unwrap();
    open(
        Options {
            redis_url: Some(redis.url()),
            ..Options::default()
        },
        async |env| {
            let item = env.create(json!({ "stock": 50, "segments": 3 })).await;
            for buyer in 0..6 {
                // Cuts every subscription: wake-ups and checkpoints of the next orders may be lost.
                run(
                    &redis.url(),
                    redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub"),
                )
                .await;
                let held = env.order(&item, &format!("buyer-{buyer}"), "k", 1).await;
                held.is_held();
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_order_is_never_answered_as_held_after_a_lost_notification() {
    let redis = Redis::start().await.unwrap();
    // The recorder has its own Redis connections, so that the test can cut the order service's
    // subscription alone.
    open(
        Options {
            redis_url: Some(redis.url()),
            instances: 2,
            ..Options::default()
        },
        async |env| {
            for round in 0..4 {
                let item = env.create(json!({ "stock": 1, "segments": 1 })).await;
                env.order(&item, "ann", "k", 1).await.is_held();
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
                    Answer::of(env.order_at(1, &item, &format!("early-{buyer}"), "k", 1))
                });
                // These orders arrive after the subscription is restored: their notification must
                // not affect the earlier orders.
                let late = async {
                    tokio::time::sleep(Duration::from_millis(190 + 10 * round)).await;
                    join_all((0..3).map(|buyer| {
                        Answer::of(env.order_at(1, &item, &format!("late-{buyer}"), "k", 1))
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
async fn an_item_does_not_restart_with_all_units_after_redis_lost_its_keys() {
    let redis = Redis::start().await.unwrap();
    open(
        Options {
            redis_url: Some(redis.url()),
            order_timeout: Duration::from_secs(5),
            ..Options::default()
        },
        async |env| {
            let body = json!({ "stock": 2, "durability": "accepted" });
            let item = env.create(body.clone()).await;
            for buyer in ["ann", "bob"] {
                let order = known(async || env.order(&item, buyer, "k", 1).await).await;
                assert_eq!(order.status, 202);
            }
            env.settled_audit(&item).await;
            run(&redis.url(), &redis::cmd("FLUSHALL")).await;
            let mut same = body;
            same["id"] = json!(item);
            env.admin_posts("/v1/items", &same).await;
            for buyer in ["carol", "dan"] {
                assert_eq!(
                    env.order(&item, buyer, "k", 1).await.status,
                    503,
                    "the number of units sold is not known"
                );
            }
            let report = env.audit_without_http(&item).await;
            assert!(
                report.drift > 0 && report.oversold == 0 && report.held == 2,
                "{report:?}"
            );
            env.forget_item(&item);
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_state_that_did_not_reach_redis_is_applied_later() {
    let mut redis = Redis::start().await.unwrap();
    let options = Options {
        redis_url: Some(redis.url()),
        order_timeout: Duration::from_secs(3),
        ..Options::default()
    };
    let env_test = async |env: std::sync::Arc<crate::env::TestEnv>, redis: &mut Redis| {
        let item = env.create(json!({ "stock": 500, "segments": 3 })).await;
        let held = known(async || env.order(&item, "ann", "k", 1).await).await;
        held.is_held();
        redis.kill().await.unwrap();
        let paused = env.set_state(&item, "paused").await;
        // The ledger has committed the change, so `unavailable` would deny it.
        paused.is(503, "outcome_unknown");
        let state = env.engines[0].item(&item.parse().unwrap()).await.unwrap();
        assert_eq!(state.unwrap().state, domain::ItemState::Paused);
        redis.restart().await.unwrap();
        let mut attempt = 0;
        eventually("an item that does not sell any more", async || {
            attempt += 1;
            let key = format!("k-{attempt}");
            env.order(&item, "bob", &key, 1).await.code() == "not_open"
        })
        .await;
    };
    open(options, |env| env_test(env, &mut redis)).await;
}

#[tested_in(open(Options::default()))]
async fn a_repeat_of_an_order_that_redis_lost_is_answered_from_the_ledger(env: Env) {
    let item = env.create(json!({ "stock": 5, "segments": 2 })).await;
    let before = env.order(&item, "ann", "k", 2).await;
    env.order(&item, "bob", "takes-what-would-be-taken-again", 2)
        .await
        .is_held();
    let id: domain::OrderId = before.is_held().body["id"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    forget(&env, &item, id).await;
    let repeat = env.order(&item, "ann", "k", 2).await;
    assert_eq!(repeat.is_held().body["id"], before.body["id"]);
    forget(&env, &item, id).await;
    let refused = env.order(&item, "ann", "k", 3).await;
    refused.is(422, "idempotency_key_reused");
    let refused = env.order(&item, "ann", "another", 2).await;
    refused.is(409, "sold_out");
    assert_eq!(env.settled_audit(&item).await["held"], 4);
}

/// Deletes an order from Redis, as a failover to a lagging replica does.
async fn forget(env: &TestEnv, item: &str, order: domain::OrderId) {
    for segment in 0..2 {
        let answers = format!("decisions:{{{item}:{segment}}}");
        run(
            &env.redis_url,
            redis::cmd("HDEL").arg(answers).arg(&order.as_bytes()[..]),
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_payment_gives_the_old_units_back_before_it_takes_others() {
    let redis = Redis::start().await.unwrap();
    let options = Options {
        redis_url: Some(redis.url()),
        ..Options::default()
    };
    open(options, async |env| {
        let item = env.create(json!({ "stock": 4, "segments": 1 })).await;
        let order = env.order(&item, "ann", "k", 2).await.is_held().id();
        let ledger = ledger::connect(&env.database_url, 1).await.unwrap();
        let recorded = ledger.order(order.parse().unwrap()).await.unwrap();
        let ended = ledger.expire_orders(&[recorded.unwrap()]).await.unwrap();
        assert_eq!(ended.len(), 1, "and its units are not back");
        let replicas = async |needed: &str| {
            let mut config = redis::cmd("CONFIG");
            config.arg("SET").arg("min-replicas-to-write").arg(needed);
            run(&redis.url(), &config).await;
        };
        let refusals = async || {
            let mut redis = testbed::patient_connection(&redis.url()).await.unwrap();
            let mut info = redis::cmd("INFO");
            let info: String = info
                .arg("errorstats")
                .query_async(&mut redis)
                .await
                .unwrap();
            let count = info.split("errorstat_NOREPLICAS:count=").nth(1);
            let count = count.and_then(|count| count.lines().next());
            count.map_or(0, |count| count.trim().parse::<u64>().unwrap())
        };
        replicas("1").await;
        let resume = async {
            // The payment is refused, and tries again.
            eventually("refused writes", async || refusals().await >= 10).await;
            replicas("0").await;
        };
        let (paid, ()) = tokio::join!(env.pay(&order, "late"), resume);
        paid.is_now("confirmed");
        assert_eq!(env.units(&item).await, [2, 0, 2]);
    })
    .await;
}
