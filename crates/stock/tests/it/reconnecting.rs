//! Connections that no failure breaks for good: a login that is refused for a while, an address
//! that leads to another server, a server that hangs. Nothing is restarted, and no connection is
//! cut that the failure itself would leave open: recovery must come from the replies.

use std::{sync::Arc, time::Duration};

use domain::SegmentKey;
use stock::{InspectionEntries, OutboxRead, RedisSettings, Stock, StockError, StockSettings};
use testbed::{Proxy, Redis, RedisCluster, RedisSentinel, RedisUser};

use crate::{
    sale::{self, Sale, Terms, buyer, eventually, is_held},
    site::{self, Site},
};

const SHOP: RedisUser = RedisUser {
    name: "shop",
    password: "secret",
};

/// Uses every connection that an instance has. Returns whether all of them worked.
async fn all_work(sale: &Sale, stock: &Stock, order: usize) -> bool {
    let segment = sale.segment(0);
    let all = InspectionEntries::All;
    // Shared by the orders; of the recorder; of the operators.
    let item = stock.item(&sale.item);
    let placed = item.order(sale.reservation(&buyer(order), "k", 1));
    placed.await.is_ok_and(|outcome| is_held(&outcome))
        && reads_as_the_recorder_does(stock, &segment).await
        && stock.snapshot(&segment, all).await.is_ok()
}

/// On the connection for long reads. [`Stock::read_outbox`] is for operators and has another one.
async fn reads_as_the_recorder_does(stock: &Stock, segment: &SegmentKey) -> bool {
    let range = OutboxRead {
        segment: segment.clone(),
        from: None,
        at_most: 10,
    };
    let read = stock.read_outboxes(&[range]).await;
    read.iter().all(Result::is_ok)
}

async fn eventually_all_work(sale: &Sale, stock: &Stock, order: usize) {
    eventually("every connection works again", async || {
        all_work(sale, stock, order).await
    })
    .await;
}

/// Until the client has met the failure. A client that was quick enough would prove nothing.
async fn eventually_an_order_fails(sale: &Sale, stock: &Stock) {
    eventually_an_order_ends_with(sale, stock, StockError::proves_unchanged).await;
}

async fn eventually_an_order_ends_with(
    sale: &Sale,
    stock: &Stock,
    wanted: impl Fn(&StockError) -> bool,
) {
    let mut key = 0;
    eventually("an order that fails", async || {
        key += 1;
        let reservation = stock::Reservation {
            within: Duration::from_secs(3),
            ..sale.reservation(&buyer(99), &format!("{key}"), 1)
        };
        let failed = stock.item(&sale.item).order(reservation).await;
        failed.is_err_and(|error| wanted(&error))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_refused_for_a_while_stops_orders_for_that_while() {
    let server = Redis::builder().user(&SHOP).start().await.unwrap();
    let site = Site::at(SHOP.at(&server.url()), vec![server.url()]).await;
    site::run(site, async |site| {
        let sale = sale::open(&site, Terms::new(20, 2)).await;
        assert!(all_work(&sale, &sale.stock, 0).await);
        server.change_password(&SHOP, "other").await.unwrap();
        eventually_an_order_fails(&sale, &sale.stock).await;
        server.create_user(&SHOP).await.unwrap();
        eventually_all_work(&sale, &sale.stock, 1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_comes_late_stops_orders_until_it_comes() {
    let server = Redis::builder().user(&SHOP).start().await.unwrap();
    let site = Site::at(SHOP.at(&server.url()), vec![server.url()]).await;
    site::run(site, async |site| {
        let sale = sale::open(&site, Terms::new(20, 2)).await;
        assert!(all_work(&sale, &sale.stock, 0).await);
        server.remove_user(&SHOP).await.unwrap();
        eventually_an_order_fails(&sale, &sale.stock).await;
        server.create_user(&SHOP).await.unwrap();
        eventually_all_work(&sale, &sale.stock, 1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_login_behind_sentinels_heals() {
    let one = Redis::builder().user(&SHOP);
    let group = RedisSentinel::start_from(&one, 1).await.unwrap();
    let master = &group.servers()[group.master().await.unwrap()];
    let site = Site::at(SHOP.at(&group.url()), vec![master.url()]).await;
    site::run(site, async |site| {
        let sale = sale::open(&site, Terms::new(20, 2)).await;
        assert!(all_work(&sale, &sale.stock, 0).await);
        master.change_password(&SHOP, "other").await.unwrap();
        eventually_an_order_fails(&sale, &sale.stock).await;
        master.create_user(&SHOP).await.unwrap();
        eventually_all_work(&sale, &sale.stock, 1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_login_in_a_cluster_heals() {
    let one = Redis::builder().user(&SHOP);
    let cluster = RedisCluster::start_from(one, 3, 0).await.unwrap();
    let masters = cluster.nodes().iter().map(Redis::url).collect();
    let site = Site::at(SHOP.at(&cluster.url()), masters).await;
    site::run(site, async |site| {
        let sale = sale::open(&site, Terms::new(20, 2)).await;
        assert!(all_work(&sale, &sale.stock, 0).await);
        for node in cluster.nodes() {
            node.change_password(&SHOP, "other").await.unwrap();
        }
        // The client reports the refused login to whatever is in flight: it proves nothing.
        eventually_an_order_ends_with(&sale, &sale.stock, |_| true).await;
        for node in cluster.nodes() {
            node.create_user(&SHOP).await.unwrap();
        }
        eventually_all_work(&sale, &sale.stock, 1).await;
    })
    .await;
}

/// A sale at a master and its replica behind one address. It is looked at from outside at the
/// replica, which becomes the master.
struct Behind {
    old: Redis,
    new: Redis,
    address: Proxy,
}

impl Behind {
    async fn start() -> Self {
        let old = Redis::builder().user(&SHOP).start().await.unwrap();
        let new = Redis::builder().user(&SHOP).replica_of(&old);
        let new = new.start().await.unwrap();
        old.is_followed_by(1).await.unwrap();
        let address = Proxy::start(old.port()).await.unwrap();
        Self { old, new, address }
    }

    async fn site(&self) -> Site {
        let address = format!("redis://127.0.0.1:{}", self.address.port());
        Site::at(SHOP.at(&address), vec![self.new.url()]).await
    }

    /// Waits until no connection leads to the old master: not the subscriptions, and not what is
    /// idle.
    async fn eventually_left(&self, sale: &Sale, stock: &Stock) {
        let mut before = Vec::new();
        eventually("no connection to the old master", async || {
            assert!(all_work(sale, stock, 1).await, "it stays well");
            let left = self.old.clients_of(&SHOP).await.unwrap();
            if left.len() != before.len() {
                println!("at the old master: {left:#?}");
            }
            before = left;
            before.is_empty()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_follows_an_address_that_leads_to_another_master() {
    let behind = Behind::start().await;
    site::run(behind.site().await, async |site| {
        let sale = sale::open(&site, Terms::new(20, 2)).await;
        assert!(all_work(&sale, &sale.stock, 0).await);
        behind.old.hand_over_to(&behind.new).await.unwrap();
        // The address is late: what connects now reaches the old master, which is a replica.
        eventually_an_order_fails(&sale, &sale.stock).await;
        assert!(behind.old.connections_of(&SHOP).await.unwrap() > 0);
        behind.address.set_target(behind.new.port());
        eventually_all_work(&sale, &sale.stock, 1).await;
        behind.eventually_left(&sale, &sale.stock).await;
    })
    .await;
}

/// The id of a connection in a line of `CLIENT LIST`.
fn id_of(client: &str) -> Option<u64> {
    let id = client.strip_prefix("id=")?.split(' ').next()?;
    id.parse().ok()
}

/// The library reconnects by itself where a connection breaks, and does not say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_idle_follows_a_connection_that_broke() {
    let behind = Behind::start().await;
    site::run(behind.site().await, async |site| {
        let sale = sale::open(&site, Terms::new(20, 2)).await;
        assert!(all_work(&sale, &sale.stock, 0).await);
        behind.old.is_followed_by(1).await.unwrap();
        behind.new.promote().await.unwrap();
        behind.address.set_target(behind.new.port());
        // The orders' connection alone: all others stay open, at what is a master still. An
        // instance opens it first. What a connection did last does not tell it from the operators'.
        let clients = behind.old.clients_of(&SHOP).await.unwrap();
        let id = clients.iter().filter_map(|line| id_of(line)).min();
        let mut raw = site::raw(&behind.old.url()).await;
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(id.unwrap());
        kill.exec_async(&mut raw).await.unwrap();
        eventually_all_work(&sale, &sale.stock, 1).await;
        behind.eventually_left(&sale, &sale.stock).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_hangs_is_left_when_the_address_leads_to_another() {
    let behind = Behind::start().await;
    site::run(behind.site().await, async |site| {
        let redis = RedisSettings {
            response_timeout: Duration::from_millis(300),
            ..RedisSettings::new(&site.url)
        };
        let impatient = StockSettings {
            redis,
            ..site.settings()
        };
        let stock = site.instance_with(impatient).await;
        let sale = sale::open_with(&site, Terms::new(20, 2), Arc::clone(&stock)).await;
        eventually_all_work(&sale, &stock, 0).await;
        behind.old.is_followed_by(1).await.unwrap();
        behind.old.pause().await.unwrap();
        behind.new.promote().await.unwrap();
        behind.address.set_target(behind.new.port());
        eventually_all_work(&sale, &stock, 1).await;
        // What was sent to the old master is carried out there, and counts for nothing.
        behind.old.resume().await.unwrap();
        // It is a master again, and would take whatever were sent to it.
        behind.eventually_left(&sale, &stock).await;
    })
    .await;
}
