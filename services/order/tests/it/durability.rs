//! When an order is acknowledged, and what can be seen of it by then.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::shop::{Answer, Options, open, open_each};

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_order_is_answered_before_the_ledger_has_it_and_shown_by_every_instance() {
    let options = Options {
        instances: 2,
        recorder: false,
        ..Options::default()
    };
    open_each(options, async |shop| {
        // With one segment every buyer's walk begins where this order is: it must still be its own buyer's only.
        let single = shop
            .create(json!({ "stock": 20, "segments": 1, "durability": "accepted" }))
            .await;
        shop.order(&single, "ann", "k", 1).await;
        let item = shop
            .create(json!({ "stock": 20, "segments": 4, "durability": "accepted" }))
            .await;
        let order = shop.order(&item, "ann", "k", 1).await;
        for item in [&single, &item] {
            let order = shop.order(item, "ann", "k", 1).await;
            assert_eq!((order.status, &order.body["state"]), (202, &json!("held")));
            let path = order.header("location").unwrap();
            for instance in 0..2 {
                for token in [crate::shop::token("ann"), crate::shop::ADMIN.to_owned()] {
                    let request = reqwest::Client::new()
                        .get(shop.url(instance, path))
                        .bearer_auth(token);
                    let shown = Answer::of(request).await;
                    assert_eq!(
                        (shown.status, &shown.body),
                        (200, &order.body),
                        "from the segment, not yet from the ledger"
                    );
                }
            }
            Answer::of(shop.buyer("bob", Method::GET, path))
                .await
                .is(404, "order_not_found");
        }
        let path = order.header("location").unwrap();
        let again = shop.order(&item, "ann", "k", 1).await;
        assert_eq!(
            (
                again.status,
                &again.body,
                again.header("idempotent-replayed")
            ),
            (202, &order.body, Some("true"))
        );
        let audit = Answer::of(shop.admin(Method::GET, &format!("/items/{item}/audit")))
            .await
            .body;
        assert_eq!(
            (&audit["in_flight"], &audit["drift"]),
            (&json!(1), &json!(0))
        );
        shop.start_recorder();
        assert_eq!(shop.settled_audit(&item).await["held"], 1);
        let shown = Answer::of(shop.admin(Method::GET, path)).await;
        assert_eq!(
            (shown.status, &shown.body),
            (200, &order.body),
            "now from the ledger"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buyer_who_prefers_not_to_wait_does_not() {
    open(Options::default(), async |shop| {
        let item = shop.create(json!({ "stock": 20 })).await;
        for (key, prefer, status) in [
            ("a", "respond-async", 202),
            ("b", "wait=1, Respond-Async", 202),
            ("c", "return=minimal", 201),
        ] {
            let answer = Answer::of(
                shop.order_at(0, &item, "ann", key, 1)
                    .header("Prefer", prefer),
            )
            .await;
            assert_eq!(answer.status, status, "{prefer}");
            assert!(answer.header("location").unwrap().starts_with("/orders/"));
        }
        let waited = shop.order(&item, "ann", "a", 1).await;
        assert_eq!(waited.is_held().header("idempotent-replayed"), Some("true"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_order_is_not_acknowledged_before_the_ledger_has_it() {
    let options = Options {
        recorder: false,
        order_within: Duration::from_millis(400),
        ..Options::default()
    };
    open_each(options, async |shop| {
        let item = shop.create(json!({ "stock": 20, "segments": 2 })).await;
        let unknown = shop.order(&item, "ann", "k", 1).await;
        assert_eq!(
            unknown.is(503, "outcome_unknown").header("retry-after"),
            Some("1")
        );
        shop.order(&item, "ann", "k", 1)
            .await
            .is(503, "outcome_unknown");
        shop.start_recorder();
        shop.settled_audit(&item).await;
        let resolved = shop.order(&item, "ann", "k", 1).await;
        assert_eq!(
            resolved.is_held().header("idempotent-replayed"),
            Some("true")
        );
        assert_eq!(
            shop.settled_audit(&item).await["held"],
            1,
            "one order, however often it was asked for"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_redis_sells_beyond_the_stock_the_ledger_rejects() {
    open_each(Options::default(), async |shop| {
        let item = shop.create(json!({ "stock": 5, "segments": 1 })).await;
        // Somebody "repaired" the counter by hand.
        let mut cmd = redis::cmd("HINCRBY");
        cmd.arg(format!("stock:{{{item}:0}}"))
            .arg("available")
            .arg(3);
        run(&shop.redis_url, &cmd).await;
        let mut held = 0;
        for buyer in 0..10 {
            let answer = shop.order(&item, &format!("buyer-{buyer}"), "k", 1).await;
            let again = shop.order(&item, &format!("buyer-{buyer}"), "k", 1).await;
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
        let audit = shop.settled_audit(&item).await;
        assert_eq!(
            (&audit["held"], &audit["rejected_orders"]),
            (&json!(5), &json!(3))
        );
    })
    .await;
}

/// Runs a command behind the engine's back.
pub async fn run(url: &str, cmd: &redis::Cmd) {
    if let Some(nodes) = url.strip_prefix("redis+cluster://") {
        let nodes = nodes.split(',').map(|node| format!("redis://{node}"));
        let client = redis::cluster::ClusterClient::new(nodes).unwrap();
        cmd.exec_async(&mut client.get_async_connection().await.unwrap())
            .await
            .unwrap();
    } else {
        let client = redis::Client::open(url).unwrap();
        cmd.exec_async(&mut client.get_multiplexed_async_connection().await.unwrap())
            .await
            .unwrap();
    }
}
