//! Backup and restore, by the commands of `docs/operations.md`: the ledger, Redis, or both are
//! restored to an earlier moment. What is lost is exactly what the page says, and the item sells
//! on.

mod drill;
mod file;
mod stock;

use std::collections::BTreeSet;

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

pub use self::drill::{documented, path};
use self::{
    drill::{Drill, Placed},
    stock::StockServers,
};
use crate::{
    crashes::{Rush, replay, wait_for},
    process::{create, settled_audit, token},
};

fn ids<'a>(placed: impl IntoIterator<Item = &'a Placed>) -> BTreeSet<String> {
    placed.into_iter().map(|placed| placed.id.clone()).collect()
}

/// The events behind the cursor, or all: their ids, and the next cursor.
async fn events(drill: &Drill, after: Option<&str>) -> (Vec<String>, String) {
    let after = after.map_or_else(String::new, |after| format!("&after={after}"));
    let page = Client::new()
        .get(format!("{}/v1/events?limit=1000{after}", drill.url))
        .bearer_auth(&drill.admin)
        .send()
        .await
        .unwrap();
    assert_eq!(page.status(), StatusCode::OK, "{after}");
    let page: Value = page.json().await.unwrap();
    let events = page["data"].as_array().unwrap().iter();
    let ids = events.map(|event| event["id"].as_str().unwrap().to_owned());
    (ids.collect(), page["next"].as_str().unwrap().to_owned())
}

/// The orders of the lost part, without those whose entries the outboxes still have.
fn lost<'a>(placed: &'a [Placed], kept: &BTreeSet<String>) -> Vec<&'a Placed> {
    placed
        .iter()
        .filter(|placed| !kept.contains(&placed.id))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_is_restored_loses_what_came_after_the_moment_and_the_item_sells_on() {
    let mut drill = Drill::start().await;
    drill.create("vase").await;
    drill.create("old").await;
    drill.close("old").await;
    let mut earlier = drill.hold_all(0..6).await;
    drill.back_up_ledger();
    // These are in the log behind the base copy.
    earlier.extend(drill.hold_all(6..10).await);
    assert_eq!(drill.pay(&earlier[0]).await, StatusCode::OK);
    let moment = drill.moment().await;

    let mut later = drill.hold_all(10..15).await;
    // A rebuild of an item that sells changes nothing but the fences: they are above those that the
    // restored ledger has, and so is the lock's token, which is in the ledger's database.
    for _ in 0..2 {
        drill.stockade(&["reconcile", "vase", "--rebuild"]);
    }
    later.extend(drill.hold_all(15..24).await);
    assert_eq!(drill.pay(&earlier[1]).await, StatusCode::OK);
    assert_eq!(drill.pay(&later[0]).await, StatusCode::OK);
    drill.create("late").await;
    drill.hold("late", "buyer-0").await;
    drill.stockade(&["items", "archive", "old"]);
    drill.outboxes_are_trimmed().await;
    let kept = drill.last_of_each_segment(&later).await;
    let lost = lost(&later, &kept);
    assert_eq!(lost.len(), 12);
    let (seen, cursor) = events(&drill, None).await;

    drill.stop_all();
    drill.restore_ledger(&moment).await;
    drill.run("# Skip the numbers of lost events.", &[]);
    // A plain repair is not enough: Redis still has the lost orders.
    drill.stockade(&["reconcile", "vase"]);
    let expected = &ids(&earlier) | &kept;
    assert_eq!(drill.recorded(&["held", "confirmed"]).await, expected);
    drill.serve("order,recorder").await;
    let repeated = drill.place("vase", &lost[1].buyer).await;
    assert_eq!(repeated.status(), StatusCode::SERVICE_UNAVAILABLE);
    drill.stop_all();

    let printed = drill.rebuild();
    assert!(
        printed.contains("vase: rebuilt from the ledger"),
        "{printed}"
    );
    assert!(printed.contains("old is NOT rebuilt"), "{printed}");
    drill.delete_tombstones("old").await;
    drill.stockade(&["reconcile", "old", "--rebuild"]);
    drill.serve("order,recorder").await;
    // The provider reports the payments since the moment again.
    assert_eq!(drill.pay(&earlier[1]).await, StatusCode::OK);
    assert_eq!(drill.pay(lost[0]).await, StatusCode::NOT_FOUND);
    drill.serve("reconciler").await;
    let printed = drill.run("# Check every item.", &[]);
    assert!(printed.contains("vase"), "{printed}");
    drill.is_clean("vase").await;
    drill.is_clean("old").await;

    assert_eq!(drill.recorded(&["held", "confirmed"]).await, expected);
    assert_eq!(drill.recorded(&["confirmed"]).await, ids(&earlier[..2]));
    let repeated = drill.hold("vase", &lost[1].buyer).await;
    assert_eq!(repeated.id, lost[1].id, "a repeat is the same order");
    drill.create("late").await;
    drill.rebuild();
    drill.hold("late", "buyer-0").await;
    drill.is_clean("late").await;
    drill.sells_on_to_the_last_unit().await;
    // A reader goes on from its cursor, which is from the lost part, and meets no id again.
    let (new, _) = events(&drill, Some(&cursor)).await;
    assert!(!new.is_empty() && new.iter().all(|id| !seen.contains(id)));
    let (all, _) = events(&drill, None).await;
    let after_the_moment: Vec<_> = all.iter().filter(|id| !seen.contains(id)).collect();
    assert_eq!(
        after_the_moment,
        new.iter().collect::<Vec<_>>(),
        "none is missed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_restored_loses_no_recorded_order_and_needs_no_operator() {
    let mut drill = Drill::start().await;
    drill.create("vase").await;
    drill.serve("reconciler").await;
    let mut placed = drill.hold_all(0..6).await;
    drill.back_up_ledger();
    drill.back_up_redis();
    placed.extend(drill.hold_all(6..20).await);
    assert_eq!(drill.pay(&placed[0]).await, StatusCode::OK);
    assert_eq!(drill.pay(&placed[10]).await, StatusCode::OK);

    drill.restore_redis().await;
    drill.is_clean("vase").await;
    assert_eq!(drill.recorded(&["held", "confirmed"]).await, ids(&placed));
    for order in &placed {
        let repeated = drill.place_until_known("vase", &order.buyer).await;
        assert_eq!(repeated.headers()["idempotent-replayed"], "true");
    }
    drill.sells_on_to_the_last_unit().await;
}

/// The same under Sentinel, and on a cluster: replicas stop first and start last, so that none of
/// them becomes the master with what it has.
async fn a_restored_stock_loses_no_recorded_order(stock: StockServers) {
    let mut drill = Drill::on(stock).await;
    drill.create("vase").await;
    drill.serve("reconciler").await;
    let mut placed = drill.hold_all(0..6).await;
    drill.back_up_ledger();
    drill.back_up_redis();
    placed.extend(drill.hold_all(6..20).await);
    assert_eq!(drill.pay(&placed[10]).await, StatusCode::OK);

    drill.restore_redis().await;
    drill.is_clean("vase").await;
    assert_eq!(drill.recorded(&["held", "confirmed"]).await, ids(&placed));
    assert_eq!(drill.recorded(&["confirmed"]).await, ids(&placed[10..11]));
    for order in &placed {
        let repeated = drill.place_until_known("vase", &order.buyer).await;
        assert_eq!(repeated.headers()["idempotent-replayed"], "true");
    }
    drill.sells_on_to_the_last_unit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_under_sentinel_is_restored() {
    a_restored_stock_loses_no_recorded_order(StockServers::sentinel().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_on_a_cluster_is_restored() {
    a_restored_stock_loses_no_recorded_order(StockServers::cluster().await).await;
}

/// The ledger is restored to an earlier moment under a stock that Sentinel or a cluster keeps: it
/// is rebuilt on every master, and the orders behind the moment are gone.
async fn a_ledger_restored_under(stock: StockServers) {
    let mut drill = Drill::on(stock).await;
    drill.create("vase").await;
    drill.back_up_ledger();
    let earlier = drill.hold_all(0..8).await;
    let moment = drill.moment().await;
    let later = drill.hold_all(8..20).await;
    drill.outboxes_are_trimmed().await;
    drill.stop_all();
    drill.restore_ledger(&moment).await;
    let printed = drill.rebuild();
    assert!(
        printed.contains("vase: rebuilt from the ledger"),
        "{printed}"
    );
    drill.serve("order,recorder").await;
    drill.serve("reconciler").await;
    drill.is_clean("vase").await;
    let now = drill.recorded(&["held"]).await;
    assert!(now.is_superset(&ids(&earlier)), "nothing before it is lost");
    // Of each segment, the batch recorded last may still have been in its outbox.
    assert!(now.is_subset(&ids(earlier.iter().chain(&later))));
    assert!(now.len() <= earlier.len() + 2, "{} are kept", now.len());
    for order in &later {
        assert_eq!(drill.hold("vase", &order.buyer).await.id, order.id);
    }
    drill.sells_on_to_the_last_unit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_is_restored_under_sentinel() {
    a_ledger_restored_under(StockServers::sentinel().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_is_restored_under_a_cluster() {
    a_ledger_restored_under(StockServers::cluster().await).await;
}

/// Orders that are answered before the ledger has them are lost if Redis loses them.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_restored_loses_orders_that_were_not_recorded() {
    let mut drill = Drill::start().await;
    drill.create("vase").await;
    let placed = drill.hold_all(0..6).await;
    drill.back_up_ledger();
    drill.back_up_redis();
    drill.stop_all();
    drill.serve("order").await;
    let response = drill.place_async("vase", "buyer-7").await;
    assert_eq!(response.status(), StatusCode::ACCEPTED);

    drill.restore_redis().await;
    drill.serve("recorder,order").await;
    drill.serve("reconciler").await;
    drill.is_clean("vase").await;
    assert_eq!(drill.recorded(&["held", "confirmed"]).await, ids(&placed));
    drill.hold("vase", "buyer-7").await;
    drill.sells_on_to_the_last_unit().await;
}

/// Redis to a later moment than the ledger, and to an earlier one.
#[tokio::test(flavor = "multi_thread")]
async fn both_restored_lose_what_came_after_the_ledgers_moment_and_the_item_sells_on() {
    for redis_is_older in [false, true] {
        let mut drill = Drill::start().await;
        drill.create("vase").await;
        let mut earlier = drill.hold_all(0..6).await;
        drill.back_up_ledger();
        if redis_is_older {
            drill.back_up_redis();
        }
        earlier.extend(drill.hold_all(6..10).await);
        let moment = drill.moment().await;
        let later = drill.hold_all(10..20).await;
        drill.outboxes_are_trimmed().await;
        let mut kept = BTreeSet::new();
        if !redis_is_older {
            kept = drill.last_of_each_segment(&later).await;
            drill.back_up_redis();
        }
        let last = drill.hold_all(20..26).await;

        drill.stop_all();
        drill.restore_redis().await;
        // No reader of events: their numbers need not be skipped.
        drill.restore_ledger(&moment).await;
        drill.rebuild();
        drill.serve("order,recorder").await;
        drill.serve("reconciler").await;
        drill.is_clean("vase").await;
        let expected = &ids(&earlier) | &kept;
        assert_eq!(
            drill.recorded(&["held", "confirmed"]).await,
            expected,
            "Redis is older: {redis_is_older}"
        );
        for order in [&lost(&later, &kept)[0], &&last[0]] {
            let repeated = drill.hold("vase", &order.buyer).await;
            assert_eq!(repeated.id, order.id, "a repeat is the same order");
        }
        drill.sells_on_to_the_last_unit().await;
    }
}

/// Orders that spill over, that wait for their recording and that are repeated meet halted
/// segments, and segments that have forgotten them.
#[tokio::test(flavor = "multi_thread")]
async fn rebuilds_in_the_middle_of_a_rush_lose_nothing() {
    let mut drill = Drill::start().await;
    drill.serve("reconciler").await;
    let (buyers, orders) = (16, 60);
    let units = buyers * orders;
    let item =
        json!({ "id": "rush", "stock": units + 10, "segments": 4, "limit_per_buyer": orders });
    create(&drill.url, &drill.admin, &item).await;
    let tokens: Vec<_> = (0..buyers)
        .map(|buyer| token(drill.dir(), &["buyer", &format!("buyer-{buyer}")]))
        .collect();
    let rush = Rush {
        url: &drill.url,
        items: &["rush"],
        tokens: &tokens,
        orders,
        insists: true,
    };
    let acknowledged = rush
        .run(async |done| {
            for tenth in 1..10 {
                wait_for(done, units * tenth / 10).await;
                drill.stockade(&["reconcile", "rush", "--rebuild"]);
            }
        })
        .await;
    assert_eq!(acknowledged.len(), units, "each order got an answer");
    replay(&drill.url, &tokens, &acknowledged).await;
    let report = settled_audit(drill.dir(), "rush").await;
    assert_eq!(report["held"], units, "{report:#}");
}
