//! Items whose sale is over cost next to nothing.

use std::{sync::Arc, time::Duration};

use domain::{Item, Window};
use jiff::{SignedDuration, Timestamp};
use testkit::{Sale, TestEnv, on_both_databases};

use crate::env::quick;

on_both_databases!(crate::env::run_on_own_redis:
    items_whose_sale_is_over_are_polled_rarely,
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
