//! What each level of durability survives: the same failover, to a replica that lags, at every level.

use std::{sync::Arc, time::Duration};

use reqwest::Method;
use serde_json::json;
use testbed::RedisSentinel;

use crate::shop::{Answer, Options, Shop, open};

/// What is known of an order before and after the failover.
struct Level {
    durability: &'static str,
    /// What the buyer is told while the only replica lags.
    while_it_lags: u16,
    /// What whoever looks for the order after the failover is told.
    afterwards: u16,
}

const LEVELS: [Level; 3] = [
    // Acknowledged and lost: what `accepted` says it may be.
    Level {
        durability: "accepted",
        while_it_lags: 202,
        afterwards: 404,
    },
    // Lost as well, but nobody was told that it was held.
    Level {
        durability: "replicated",
        while_it_lags: 503,
        afterwards: 404,
    },
    // In the ledger.
    Level {
        durability: "recorded",
        while_it_lags: 201,
        afterwards: 200,
    },
];

async fn look(shop: &Shop, path: &str) -> u16 {
    Answer::of(shop.admin(Method::GET, path)).await.status
}

/// The id is derived, so an order that was not acknowledged has one too.
pub fn path_of(item: &str, buyer: &str, key: &str) -> String {
    let item = domain::ItemId::new(item).unwrap();
    let (buyer, key) = (
        domain::BuyerId::new(buyer).unwrap(),
        domain::IdempotencyKey::new(key).unwrap(),
    );
    format!(
        "/orders/{}",
        domain::OrderId::derive(&item, item.tag(), &buyer, &key)
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_to_a_replica_that_lags_loses_what_each_level_says_and_no_more() {
    for level in LEVELS {
        let mut group = RedisSentinel::start(1).await.unwrap();
        let recorded = level.durability == "recorded";
        let options = Options {
            redis_url: Some(group.url()),
            recorder: recorded,
            order_within: Duration::from_secs(2),
            ..Options::default()
        };
        open(options, async |shop: Arc<Shop>| {
            let item = shop
                .create(json!({ "stock": 20, "segments": 1, "durability": level.durability }))
                .await;
            group.servers()[0].is_followed_by(1).await.unwrap();
            group.servers()[1].lag().await.unwrap();
            let order = shop.order(&item, "ann", "k", 1).await;
            assert_eq!(
                order.status, level.while_it_lags,
                "{}: {order:?}",
                level.durability
            );
            let path = path_of(&item, "ann", "k");
            assert_eq!(
                look(&shop, &path).await,
                200,
                "{}: whatever was said, it is there",
                level.durability
            );
            fail_over(&mut group, &shop).await;
            assert_eq!(
                look(&shop, &path).await,
                level.afterwards,
                "{}",
                level.durability
            );
            if recorded {
                // What Redis lost the ledger has: that is a divergence, which the audit of the other levels would not forgive.
                shop.forget_item(&item);
            } else {
                shop.start_recorder();
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replicated_order_is_acknowledged_with_its_place_and_survives_the_kill_of_the_master() {
    let mut group = RedisSentinel::start(1).await.unwrap();
    let options = Options {
        redis_url: Some(group.url()),
        recorder: false,
        ..Options::default()
    };
    open(options, async |shop: Arc<Shop>| {
        let item = shop
            .create(json!({ "stock": 20, "segments": 2, "durability": "replicated" }))
            .await;
        let order = shop.order(&item, "ann", "k", 1).await;
        assert_eq!((order.status, &order.body["state"]), (202, &json!("held")));
        assert_eq!(
            order.header("location").unwrap(),
            path_of(&item, "ann", "k")
        );
        let old = fail_over(&mut group, &shop).await;
        assert_eq!(look(&shop, order.header("location").unwrap()).await, 200);
        // Nobody follows the new master yet, so nobody can confirm anything.
        shop.order(&item, "bob", "k", 1)
            .await
            .is(503, "outcome_unknown");
        group.restart_as_replica(old).await.unwrap();
        let again = shop.order(&item, "ann", "k", 1).await;
        assert_eq!(
            (
                again.status,
                &again.body,
                again.header("idempotent-replayed")
            ),
            (202, &order.body, Some("true"))
        );
        assert_eq!(shop.order(&item, "bob", "k", 1).await.status, 202);
        shop.start_recorder();
        assert_eq!(shop.settled_audit(&item).await["held"], 2);
    })
    .await;
}

/// Kills the master, lets its lagging replica go on without what it has missed, and waits until the shop has followed.
async fn fail_over(group: &mut RedisSentinel, shop: &Shop) -> usize {
    let old = group.kill_master().await.unwrap();
    for server in group
        .servers()
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != old)
        .map(|(_, server)| server)
    {
        server.catch_up().await.unwrap();
    }
    group.successor_of(old).await.unwrap();
    for _ in 0..500 {
        if look(shop, "/readyz").await == 200 {
            return old;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the shop has not followed the failover");
}
