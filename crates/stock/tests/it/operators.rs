//! Reads by operators and auditors have connections of their own, and time limits.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use stock::{InspectionEntries, RedisSettings, Stock, StockSettings};
use testbed::{Redis, in_time};

use crate::{
    sale::{self, Sale, Terms, buyer, eventually, is_held},
    site::{Site, on_both, on_own_server, tested},
};

/// The size of the pool.
const CONNECTIONS_MAX: usize = 4;

#[tested(on_both)]
async fn snapshots_and_outboxes_are_read_on_every_kind_of_server(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(8, 2)).await;
    let order = sale.order(&sale.buyer_at(0, 0), "k", 1).await;
    assert!(is_held(&order));
    let segment = sale.segment(0);
    let all = InspectionEntries::All;
    let inspection = sale.stock.snapshot(&segment, all).await.unwrap();
    assert_eq!((inspection.available, inspection.decisions), (3, 1));
    let entries = sale.stock.read_outbox(&segment, None, 10).await.unwrap();
    assert_eq!(entries.len(), inspection.entries.len());
    assert_eq!(entries.last().unwrap().id, inspection.last);
}

#[tested(on_both)]
async fn the_memory_of_every_master_is_read(site: Arc<Site>) {
    let sale = sale::open(&site, Terms::new(8, 2)).await;
    let memory = sale.stock.memory().await.unwrap();
    let mut servers: Vec<_> = memory.iter().map(|memory| &*memory.server).collect();
    let masters = site.masters.iter().map(|url| &url["redis://".len()..]);
    let mut masters: Vec<_> = masters.collect();
    servers.sort_unstable();
    masters.sort_unstable();
    assert_eq!(servers, masters);
    assert!(memory.iter().all(|memory| memory.used_bytes > 100_000));
}

async fn clients(sale: &Sale) -> usize {
    let list: String = sale.redis(redis::cmd("CLIENT").arg("LIST")).await;
    list.lines().count()
}

#[tested(on_own_server)]
async fn concurrent_reads_open_at_most_four_connections(site: Arc<Site>, _: &mut Redis) {
    let sale = sale::open(&site, Terms::new(8, 2)).await;
    let before = clients(&sale).await;
    let segment = sale.segment(0);
    for _ in 0..3 {
        let reads = (0..64).map(|_| sale.stock.snapshot(&segment, InspectionEntries::All));
        assert!(join_all(reads).await.iter().all(Result::is_ok));
    }
    let opened = clients(&sale).await - before;
    assert!((1..=CONNECTIONS_MAX).contains(&opened), "{opened} opened");
    let orders = (0..4).map(|n| sale.reservation(&buyer(n), "k", 1));
    let item = sale.at_first();
    let held = join_all(orders.map(|order| item.order(order))).await;
    assert!(
        held.iter()
            .all(|outcome| is_held(outcome.as_ref().unwrap()))
    );
    assert_eq!(
        clients(&sale).await - before,
        opened,
        "orders share one connection, which was open before"
    );
}

#[tested(on_own_server)]
async fn a_read_fails_in_time_while_the_server_hangs_and_succeeds_afterwards(
    site: Arc<Site>,
    server: &mut Redis,
) {
    let sale = sale::open(&site, Terms::new(8, 2)).await;
    let redis = RedisSettings {
        response_timeout: Duration::from_millis(500),
        ..RedisSettings::new(&site.url)
    };
    let settings = StockSettings {
        redis,
        ..site.settings()
    };
    let stock: Arc<Stock> = site.instance_with(settings).await;
    let segment = sale.segment(0);
    let read = || stock.snapshot(&segment, InspectionEntries::None);
    eventually("a first read", async || read().await.is_ok()).await;
    server.pause().await.unwrap();
    // The server answers none of them.
    let failed = in_time("the end of every read", join_all((0..8).map(|_| read())));
    for result in failed.await {
        assert!(result.unwrap_err().is_retryable());
    }
    server.resume().await.unwrap();
    eventually("a read that succeeds", async || read().await.is_ok()).await;
}
