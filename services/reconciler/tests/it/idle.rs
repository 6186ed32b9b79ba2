//! Items whose sale is over cost next to nothing.

use std::{sync::Arc, time::Duration};

use domain::{Item, Window};
use jiff::{SignedDuration, Timestamp};
use testkit::{Sale, TestEnv, on_both_databases};

use crate::env::quick;

on_both_databases!(crate::env::run_on_own_redis:
    items_whose_sale_is_over_are_polled_rarely,
    archived_items_cost_the_workers_nothing,
);

fn ended(item: Item) -> Item {
    let window = Window {
        opens_at: None,
        closes_at: Some(Timestamp::now() - SignedDuration::from_hours(1)),
    };
    Item { window, ..item }
}

/// Scripts that the server has run.
async fn scripts(sale: &Sale) -> u64 {
    let stats: redis::InfoDict = sale.redis(redis::cmd("INFO").arg("commandstats")).await;
    let stats: Option<String> = stats.get("cmdstat_evalsha");
    stats.map_or(0, |stats| {
        stats.split(['=', ',']).nth(1).unwrap().parse().unwrap()
    })
}

async fn items_whose_sale_is_over_are_polled_rarely(env: &Arc<TestEnv>) {
    env.record().await;
    let mut sales = Vec::new();
    for _ in 0..10 {
        sales.push(env.sell_with(40, 4, ended).await);
    }
    for sale in &sales {
        sale.comes_to_rest().await;
    }
    env.reconcile(quick()).await;
    // The first round looks at all of them.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = scripts(&sales[0]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let polls = scripts(&sales[0]).await - before;
    assert!(
        polls < 200,
        "{polls} scripts in a second for 40 segments at rest"
    );
}

/// Scripts of one second.
async fn scripts_in_a_second(sale: &Sale) -> u64 {
    let before = scripts(sale).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    scripts(sale).await - before
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
async fn archived_items_cost_the_workers_nothing(env: &Arc<TestEnv>) {
    env.record().await;
    let mut sales = Vec::new();
    for _ in 0..3 {
        sales.push(env.sell(40, 4).await);
    }
    env.reconcile(quick()).await;
    for sale in &sales {
        sale.comes_to_rest().await;
    }
    let before = scripts_in_a_second(&sales[0]).await;
    a_thousand_archived(env, &sales[0].item).await;
    let ledger = &sales[0].ledger;
    assert_eq!(ledger.live_items().await.unwrap().len(), 3);
    assert_eq!(ledger.checkpoints().await.unwrap().len(), 3 * 4);
    let after = scripts_in_a_second(&sales[0]).await;
    assert!(
        before > 0 && after < before * 2 + 50,
        "{after} scripts a second, {before} without the archived items"
    );
}
