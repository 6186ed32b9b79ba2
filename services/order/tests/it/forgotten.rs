//! A repeat of an acknowledged order, after a failover that lost what its home had declined.

use std::{sync::Arc, time::Duration};

use domain::{BuyerId, SegmentKey};
use reconciler::ReconcilerSettings;
use reqwest::Method;
use serde_json::json;
use stock::InspectionEntries;
use testbed::RedisSentinel;
use testkit::eventually;

use crate::{
    env::{Answer, Options, Stores, TestEnv, open},
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

async fn a_repeat_is_the_order_that_was_acknowledged(stores: Stores) {
    let mut group = RedisSentinel::start(1).await.unwrap();
    open(options(stores, &group), async |env: Arc<TestEnv>| {
        let item = env.create(json!({ "stock": 4, "segments": 2 })).await;
        for n in 0..2 {
            env.order(&item, &buyer_at(1, n), "k", 1).await.is_held();
        }
        env.settled_audit(&item).await;
        group.servers()[0].is_followed_by(1).await.unwrap();
        group.servers()[1].lag().await.unwrap();
        // Their home is empty, so the other segment sells them its units.
        let (ann, bob) = (buyer_at(1, 2), buyer_at(1, 3));
        let anns = env.order(&item, &ann, "k", 1).await;
        let bobs = env.order(&item, &bob, "k", 1).await;
        anns.is_held();
        bobs.is_held();

        fail_over(&mut group, &env).await;
        homes_are_checked(&env, &item).await;
        let late = env.order(&item, &buyer_at(0, 0), "k", 1).await;
        late.is(409, "sold_out");
        let again = env.order(&item, &ann, "k", 1).await;
        assert_eq!((again.status, &again.body), (201, &anns.body));
        let pause = env.admin(Method::PUT, &format!("/v1/items/{item}/state"));
        let paused = Answer::of(pause.json(&json!({ "state": "paused" }))).await;
        assert_eq!(paused.status, 200, "{paused:?}");
        let again = env.order(&item, &bob, "k", 1).await;
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
