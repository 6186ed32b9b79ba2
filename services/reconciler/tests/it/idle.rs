//! Items whose sale is over cost nothing, and neither do those that get no orders at the moment.

use std::{sync::Arc, time::Duration};

use domain::{Item, Window};
use jiff::{SignedDuration, Timestamp};
use ledger::Ledger;
use recorder::RecorderSettings;
use stock::{Acknowledge, Stock};
use testkit::{Sale, TestEnv, eventually, fresh_item_id, is_held, on_both_databases, tested};

use crate::{
    env::{quick, record_on},
    unresponsive::UnresponsiveLedger,
};

fn ended(item: Item) -> Item {
    let window = Window {
        opens_at: None,
        closes_at: Some(Timestamp::now() - SignedDuration::from_hours(1)),
    };
    Item { window, ..item }
}

/// Scripts that the server has run.
async fn scripts(sale: &Sale) -> u64 {
    count_of_scripts(&sale.redis(redis::cmd("INFO").arg("commandstats")).await)
}

async fn scripts_of(env: &TestEnv) -> u64 {
    count_of_scripts(&env.redis(redis::cmd("INFO").arg("commandstats")).await)
}

fn count_of_scripts(stats: &redis::InfoDict) -> u64 {
    let stats: Option<String> = stats.get("cmdstat_evalsha");
    stats.map_or(0, |stats| {
        stats.split(['=', ',']).nth(1).unwrap().parse().unwrap()
    })
}

/// Rounds in which every item would be polled, if each round polled all.
const ROUNDS: usize = 25;

#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn items_whose_sale_is_over_are_polled_rarely(env: &Arc<TestEnv>) {
    // The polls of a sweep would count, too.
    let without_sweeps = RecorderSettings {
        sweep_interval: Duration::from_secs(3600),
        ..RecorderSettings::default()
    };
    record_on(env, env.ledger().await, without_sweeps).await;
    let mut sales = Vec::new();
    for _ in 0..10 {
        sales.push(env.sell_with(40, 4, ended).await);
    }
    for sale in &sales {
        sale.comes_to_rest().await;
    }
    let ledger = UnresponsiveLedger::that_counts(env.ledger().await);
    env.reconcile_on(Arc::clone(&ledger) as _, quick()).await;
    // The first rounds look at all of them.
    eventually("rounds without a poll of each segment", async || {
        let before = scripts(&sales[0]).await;
        ledger.more_rounds(ROUNDS).await;
        scripts(&sales[0]).await - before < 40
    })
    .await;
}

/// Scripts for each round of the reconciler and each sweep of the recorder.
async fn scripts_each(sale: &Sale, ledger: &UnresponsiveLedger) -> u64 {
    let before = scripts(sale).await;
    let rounds = ledger.more_rounds(ROUNDS).await;
    (scripts(sale).await - before).div_ceil(rounds as u64)
}

/// A thousand archived items of four segments each, as the ledger has them.
async fn a_thousand_archived(env: &TestEnv, like: &Item) {
    let numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)";
    env.sql(&format!(
        "{numbers} INSERT INTO items (id, tag, title, stock, price, currency, segments, hold_seconds, durability, state, epoch, \
             as_created, closed_at, archived_at, keys_removed_at) \
         SELECT 'old-' || i, tag, title, 0, price, currency, segments, hold_seconds, durability, 'closed', epoch, \
             as_created, created_at, created_at, created_at FROM items, n WHERE id = '{}'",
        like.id
    ))
    .await;
    env.sql(&format!(
        "{numbers} INSERT INTO segments (item, segment, allocated, available, archived) \
         SELECT 'old-' || i, segment, 0, 0, true FROM segments, n WHERE item = '{}'",
        like.id
    ))
    .await;
}

/// Recorder and reconciler work from the index of live items.
#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn archived_items_cost_the_workers_nothing(env: &Arc<TestEnv>) {
    let counting = UnresponsiveLedger::that_counts(env.ledger().await);
    record_on(env, Arc::clone(&counting) as _, RecorderSettings::default()).await;
    let mut sales = Vec::new();
    for _ in 0..3 {
        sales.push(env.sell(40, 4).await);
    }
    env.reconcile_on(Arc::clone(&counting) as _, quick()).await;
    for sale in &sales {
        sale.comes_to_rest().await;
    }
    let before = scripts_each(&sales[0], &counting).await;
    a_thousand_archived(env, &sales[0].item).await;
    let ledger = &sales[0].ledger;
    assert_eq!(ledger.changed_items(None).await.unwrap().len(), 3);
    assert_eq!(ledger.checkpoints().await.unwrap().len(), 3 * 4);
    counting.more_sweeps(2).await;
    let after = scripts_each(&sales[0], &counting).await;
    assert!(
        before > 0 && after <= before * 2,
        "{after} scripts each, {before} without the archived items"
    );
}

/// Creates items of two segments, and opens them.
async fn create(ledger: &dyn Ledger, stock: &Stock, count: usize) {
    for _ in 0..count {
        let item = testkit::item(fresh_item_id(), 100, 2);
        ledger.create_item(&item).await.unwrap();
        stock.open(&item).await.unwrap();
    }
}

/// Waits until no round runs a script, and returns the calls of the ledger of so many rounds.
async fn calls_at_rest(env: &TestEnv, ledger: &UnresponsiveLedger) -> f64 {
    let mut calls = 0.0;
    eventually("rounds without a script", async || {
        let before = (scripts_of(env).await, ledger.calls());
        // Half of the sweeps and the other tasks have no clock in common with the rounds.
        let rounds = ledger.more_rounds(ROUNDS * 4).await;
        ledger.more_sweeps(2).await;
        calls = (ledger.calls() - before.1) as f64 / rounds as f64;
        scripts_of(env).await == before.0
    })
    .await;
    calls
}

/// A shop has tens of thousands of open items, and few of them sell.
#[tested(on_both_databases(crate::env::run_on_own_redis))]
async fn items_without_orders_cost_the_workers_nothing(env: &Arc<TestEnv>) {
    let counting = UnresponsiveLedger::that_counts(env.ledger().await);
    record_on(env, Arc::clone(&counting) as _, RecorderSettings::default()).await;
    env.reconcile_on(Arc::clone(&counting) as _, quick()).await;
    let (ledger, stock) = (env.ledger().await, env.stock().await);
    create(&*ledger, &stock, 100).await;
    let few = calls_at_rest(env, &counting).await;
    create(&*ledger, &stock, 900).await;
    let many = calls_at_rest(env, &counting).await;
    assert!(
        many < few * 2.0,
        "{few} calls a round, {many} with ten times the items"
    );
    // One that is ordered is looked at again, and no other.
    let sale = env.sell(10, 2).await;
    let before = scripts_of(env).await;
    let orders = sale.rush(&sale.stock, 0..4, Acknowledge::Recorded).await;
    assert!(orders.iter().all(|(_, outcome)| is_held(outcome)));
    counting.more_rounds(2).await;
    let after = scripts_of(env).await;
    assert!(
        after - before > 0 && after - before < 900,
        "{}",
        after - before
    );
    stock.shutdown().await;
}
