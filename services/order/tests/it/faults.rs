//! Stores that do not answer.

use std::time::Duration;

use futures::future::join_all;
use reqwest::Method;
use serde_json::json;
use testbed::Redis;

use crate::{
    durability::run,
    shop::{Answer, Options, open},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_redis_makes_outcomes_unknown_and_the_same_keys_resolve_them() {
    let redis = Redis::start().await.unwrap();
    let options = Options { redis_url: Some(redis.url()), order_within: Duration::from_millis(900), ..Options::default() };
    open(options, async |shop| {
        let item = shop.create(json!({ "stock": 50, "segments": 3, "limit_per_buyer": 1 })).await;
        shop.order(&item, "warm", "k", 1).await.is_held();
        redis.pause().await.unwrap();
        let order = |buyer: usize| {
            let shop = &shop;
            let item = &item;
            async move { shop.order(item, &format!("buyer-{buyer}"), "k", 1).await }
        };
        for answer in join_all((0..20).map(order)).await {
            assert_eq!(answer.is(503, "outcome_unknown").header("retry-after"), Some("1"));
        }
        Answer::of(shop.anyone(Method::GET, "/readyz")).await.is(503, "unavailable");
        redis.resume().await.unwrap();
        for buyer in 0..20 {
            order(buyer).await.is_held();
        }
        assert_eq!(shop.settled_audit(&item).await["held"], 21);
        assert_eq!(Answer::of(shop.anyone(Method::GET, "/readyz")).await.status, 200);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_stop_of_redis_is_not_noticed_but_by_the_clock() {
    let redis = Redis::start().await.unwrap();
    open(Options { redis_url: Some(redis.url()), ..Options::default() }, async |shop| {
        let item = shop.create(json!({ "stock": 50, "segments": 3 })).await;
        redis.pause().await.unwrap();
        let orders = join_all((0..20).map(|buyer| Answer::of(shop.order_at(0, &item, &format!("buyer-{buyer}"), "k", 1))));
        let resume = async {
            // Longer than the time after which a reply is asked for again.
            tokio::time::sleep(Duration::from_millis(700)).await;
            redis.resume().await.unwrap();
        };
        let (answers, ()) = tokio::join!(orders, resume);
        for answer in answers {
            answer.is_held();
        }
        assert_eq!(shop.settled_audit(&item).await["held"], 20, "asked for twice, taken once");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_redis_has_lost_its_scripts_and_no_order() {
    let mut redis = Redis::start().await.unwrap();
    let options = Options { redis_url: Some(redis.url()), ..Options::default() };
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
    open(Options { redis_url: Some(redis.url()), ..Options::default() }, async |shop| {
        let item = shop.create(json!({ "stock": 50, "segments": 3 })).await;
        for buyer in 0..6 {
            // Cuts every subscription: wake-ups and checkpoints of the next orders may be lost.
            run(&redis.url(), redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub")).await;
            shop.order(&item, &format!("buyer-{buyer}"), "k", 1).await.is_held();
        }
    })
    .await;
}
