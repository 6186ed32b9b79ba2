//! An item closes by itself when its window has ended, and costs nothing from then on.

use std::{sync::Arc, time::Duration};

use domain::{Item, ItemState, OrderState, Window};
use jiff::{SignedDuration, Timestamp};
use ledger::ItemChange;
use reconciler::ReconcilerSettings;
use recorder::RecorderSettings;
use stock::InspectionEntries;
use testkit::{Sale, TestEnv, buyer, eventually, on_both_databases, tested};

use crate::{
    env::{quick, record_on},
    unresponsive::UnresponsiveLedger,
};

fn closing() -> ReconcilerSettings {
    ReconcilerSettings {
        close_delay: Duration::ZERO,
        ..quick()
    }
}

fn until(closes_at: Timestamp) -> Window {
    Window {
        opens_at: None,
        closes_at: Some(closes_at),
    }
}

fn ends_in(item: Item, hours: i64) -> Item {
    let closes_at = Timestamp::now() + SignedDuration::from_hours(hours);
    Item {
        window: until(closes_at),
        ..item
    }
}

fn ends_later(item: Item) -> Item {
    ends_in(item, 1)
}

fn ended(item: Item) -> Item {
    ends_in(item, -1)
}

/// Lets the window of the item end, after all that the test has to do before.
async fn end_now(sale: &Sale) {
    let change = ItemChange {
        window: Some(until(Timestamp::now())),
        ..ItemChange::default()
    };
    sale.change(&change).await;
}

async fn current(sale: &Sale) -> Item {
    sale.ledger.item(&sale.item.id).await.unwrap().unwrap()
}

async fn is_closed(sale: &Sale) -> bool {
    let mut closed = current(sale).await.state == ItemState::Closed;
    for segment in 0..sale.item.segments {
        closed &= sale.inspect(segment).await.state == ItemState::Closed;
    }
    closed
}

async fn closes(sale: &Sale) {
    eventually("closing the item", async || is_closed(sale).await).await;
}

/// Scripts that the server has run.
async fn scripts(sale: &Sale) -> u64 {
    let stats: redis::InfoDict = sale.redis(redis::cmd("INFO").arg("commandstats")).await;
    let stats: Option<String> = stats.get("cmdstat_evalsha");
    stats.map_or(0, |stats| {
        stats.split(['=', ',']).nth(1).unwrap().parse().unwrap()
    })
}

/// A reconciler and a recorder that count their rounds and sweeps.
async fn workers(env: &Arc<TestEnv>) -> Arc<UnresponsiveLedger> {
    let ledger = UnresponsiveLedger::that_counts(env.ledger().await);
    record_on(env, Arc::clone(&ledger) as _, RecorderSettings::default()).await;
    env.reconcile_on(Arc::clone(&ledger) as _, closing()).await;
    ledger
}

/// The scripts during some rounds and sweeps.
async fn scripts_of_rounds(sale: &Sale, ledger: &UnresponsiveLedger) -> u64 {
    let before = scripts(sale).await;
    ledger.more_sweeps(3).await;
    ledger.more_rounds(30).await;
    scripts(sale).await - before
}

/// Waits until rounds and sweeps pass without a script.
async fn comes_to_silence(sale: &Sale, ledger: &UnresponsiveLedger) {
    eventually("silence", async || {
        scripts_of_rounds(sale, ledger).await == 0
    })
    .await;
}

#[tested(on_both_databases(crate::env::run))]
async fn an_item_closes_by_itself_once_with_several_reconcilers(env: &Arc<TestEnv>) {
    env.record().await;
    for _ in 0..3 {
        env.reconcile(closing()).await;
    }
    let sale = env.sell_with(6, 3, ends_later).await;
    sale.hold(&buyer(1), "key", 1).await;
    assert_eq!(current(&sale).await.state, ItemState::Open);
    end_now(&sale).await;
    closes(&sale).await;
    // Long enough for the other reconcilers to see the closed item.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let states = sale.journal("state").await;
    assert_eq!(states.len(), 1, "{states:?}");
    assert_eq!(states[0].entry.actor, "reconciler");
    assert_eq!(states[0].entry.after["state"], "closed");
    let item = current(&sale).await;
    assert_eq!((item.epoch, item.version), (3, 3), "the end, and the close");
    // A held order of a closed item can still be paid.
    let order = sale.order_id(&buyer(1), "key");
    assert_eq!(sale.state(order).await, Some(OrderState::Held));
}

#[tested(on_both_databases(crate::env::run))]
async fn an_item_that_closed_by_itself_can_be_reopened_with_another_window(env: &Arc<TestEnv>) {
    env.record().await;
    env.reconcile(closing()).await;
    let sale = env.sell_with(6, 2, ended).await;
    closes(&sale).await;
    let change = ItemChange {
        state: Some(ItemState::Open),
        window: Some(until(Timestamp::now() + SignedDuration::from_hours(1))),
        ..ItemChange::default()
    };
    sale.change(&change).await;
    sale.hold(&buyer(1), "key", 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(current(&sale).await.state, ItemState::Open);
}

#[tested(on_both_databases(crate::env::run))]
async fn a_return_to_a_closed_item_at_rest_is_recorded(env: &Arc<TestEnv>) {
    env.record().await;
    env.reconcile(closing()).await;
    let sale = env.sell_with(6, 2, ends_later).await;
    let order = sale.hold(&buyer(1), "key", 2).await;
    sale.step(order, OrderState::Confirmed).await;
    end_now(&sale).await;
    closes(&sale).await;
    // Both workers let it rest.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let refunded = sale.step(order, OrderState::Refunded).await;
    sale.release(&refunded).await.unwrap();
    eventually("the return", async || {
        let rows = sale.ledger.segments(&sale.item.id).await.unwrap();
        rows.iter().all(|row| row.returning == 0)
            && rows.iter().map(|row| row.available).sum::<u64>() == 6
    })
    .await;
}

/// `docs/operations.md`, "After the sale", has the figures.
#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn closed_items_at_rest_cost_no_script(env: &Arc<TestEnv>) {
    let ledger = UnresponsiveLedger::that_counts(env.ledger().await);
    record_on(env, Arc::clone(&ledger) as _, RecorderSettings::default()).await;
    let mut sales = Vec::new();
    for _ in 0..36 {
        sales.push(env.sell_with(60, 6, ended).await);
    }
    for sale in &sales {
        sale.comes_to_rest().await;
    }
    let opened = scripts(&sales[0]).await;
    assert!(opened > 200, "{opened} scripts for 216 segments");
    env.reconcile_on(Arc::clone(&ledger) as _, closing()).await;
    for sale in &sales {
        closes(sale).await;
    }
    comes_to_silence(&sales[0], &ledger).await;
    let closed = scripts_of_rounds(&sales[0], &ledger).await;
    assert_eq!(closed, 0, "scripts for 216 segments at rest");
}

#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn a_closed_item_at_rest_is_repaired_after_redis_has_lost_it(env: &Arc<TestEnv>) {
    let ledger = workers(env).await;
    let sale = env.sell_with(6, 2, ends_later).await;
    let order = sale.hold(&buyer(1), "key", 2).await;
    sale.step(order, OrderState::Confirmed).await;
    end_now(&sale).await;
    closes(&sale).await;
    comes_to_silence(&sale, &ledger).await;
    let () = sale.redis(&redis::cmd("FLUSHALL")).await;
    // A restart of the server ends the connections.
    let () = sale
        .redis(redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub"))
        .await;
    eventually("the repair", async || {
        let mut whole = true;
        for segment in sale.segments() {
            let found = sale.stock.inspect(&segment, InspectionEntries::None).await;
            whole &= found.is_ok_and(|found| found.repairing.is_none());
        }
        whole
    })
    .await;
}
