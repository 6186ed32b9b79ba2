//! The same failover to a lagging replica at every level of durability.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use testbed::RedisSentinel;
use testkit::{eventually, timeout};

use crate::env::{Options, TestEnv, known, open};

/// What the API shows of an order before and after the failover.
struct Level {
    durability: &'static str,
    /// Status of the order request while the only replica lags.
    while_it_lags: u16,
    /// Status of a lookup of the order after the failover.
    afterwards: u16,
}

const LEVELS: [Level; 3] = [
    // Acknowledged and lost, as `accepted` allows.
    Level {
        durability: "accepted",
        while_it_lags: 202,
        afterwards: 404,
    },
    // Lost too, but it was not acknowledged.
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

/// The status of an answer that a busy machine may delay.
async fn status_at(env: &TestEnv, path: &str) -> u16 {
    known(async || env.admin_gets(path).await).await.status
}

/// The id is derived, so an order that was not acknowledged has one too.
pub fn path_of(item: &str, buyer: &str, key: &str) -> String {
    let item = domain::ItemId::new(item).unwrap();
    let (buyer, key) = (
        domain::BuyerId::new(buyer).unwrap(),
        domain::IdempotencyKey::new(key).unwrap(),
    );
    format!(
        "/v1/orders/{}",
        domain::OrderId::derive(&item, item.tag(), &buyer, &key)
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_to_a_lagging_replica_loses_no_more_than_each_level_allows() {
    for level in LEVELS {
        let mut group = RedisSentinel::start(1).await.unwrap();
        let recorded = level.durability == "recorded";
        let options = Options {
            redis_url: Some(group.url()),
            recorder: recorded,
            order_timeout: match level.while_it_lags {
                // It has to expire.
                503 => Duration::from_secs(2),
                _ => timeout(),
            },
            ..Options::default()
        };
        open(options, async |env: Arc<TestEnv>| {
            let item = json!({ "stock": 20, "segments": 1, "durability": level.durability });
            let item = env.create(item).await;
            group.servers()[0].is_followed_by(1).await.unwrap();
            group.servers()[1].lag().await.unwrap();
            let order = env.order(&item, "ann", "k", 1).await;
            assert_eq!(
                order.status, level.while_it_lags,
                "{}: {order:?}",
                level.durability
            );
            let path = path_of(&item, "ann", "k");
            assert_eq!(
                status_at(&env, &path).await,
                200,
                "{}: lookup before the failover",
                level.durability
            );
            fail_over(&mut group, &env).await;
            assert_eq!(
                status_at(&env, &path).await,
                level.afterwards,
                "{}",
                level.durability
            );
            if recorded {
                // The ledger has orders that Redis lost. That is a divergence, at which the audit
                // of the other levels would fail.
                env.forget_item(&item);
            } else {
                env.start_recorder();
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replicated_order_survives_the_kill_of_the_master() {
    let mut group = RedisSentinel::start(1).await.unwrap();
    let options = Options {
        redis_url: Some(group.url()),
        recorder: false,
        // One order has to expire.
        order_timeout: Duration::from_secs(5),
        ..Options::default()
    };
    open(options, async |env: Arc<TestEnv>| {
        let item = json!({ "stock": 20, "segments": 2, "durability": "replicated" });
        let item = env.create(item).await;
        let order = known(async || env.order(&item, "ann", "k", 1).await).await;
        assert_eq!((order.status, &order.body["state"]), (202, &json!("held")));
        assert_eq!(
            order.header("location").unwrap(),
            path_of(&item, "ann", "k")
        );
        let old = fail_over(&mut group, &env).await;
        assert_eq!(
            status_at(&env, order.header("location").unwrap()).await,
            200
        );
        // The new master has no replica yet that could confirm a write.
        let refused = env.order(&item, "bob", "k", 1).await;
        refused.is(503, "outcome_unknown");
        group.restart_as_replica(old).await.unwrap();
        let again = known(async || env.order(&item, "ann", "k", 1).await).await;
        assert_eq!(
            (
                again.status,
                &again.body,
                again.header("idempotent-replayed")
            ),
            (202, &order.body, Some("true"))
        );
        let bobs = known(async || env.order(&item, "bob", "k", 1).await).await;
        assert_eq!(bobs.status, 202);
        env.start_recorder();
        assert_eq!(env.settled_audit(&item).await["held"], 2);
    })
    .await;
}

/// Kills the master, promotes its lagging replica without the missed writes, and waits until the
/// services use it.
pub async fn fail_over(group: &mut RedisSentinel, env: &TestEnv) -> usize {
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
    eventually("a failover that the services follow", async || {
        env.admin_gets("/readyz").await.status == 200
    })
    .await;
    old
}
