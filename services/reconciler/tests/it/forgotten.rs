//! A failover that loses what home had declined. Home's anchor is still there, so nothing but the
//! home check notices.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use domain::{BuyerId, Item, ItemState, Order, OrderState, Quantity};
use ledger::ItemChange;
use reconciler::ReconcilerSettings;
use stock::Outcome;
use testbed::{RedisCluster, RedisSentinel};
use testkit::{Backend, Sale, TestEnv, eventually, on_both_databases, tested};

use crate::env::{close, open_on_failover, quick};

/// The home of most buyers, and the segment that has the units of some of them.
const HOME: u16 = 1;
const OTHER: u16 = 0;
const UNITS: u64 = 6;
/// With two masters, both segments of an item would always be at the same one.
const MASTERS: usize = 3;

/// Each test has servers of its own.
async fn run(backend: Backend, test: impl AsyncFnOnce(Backend)) {
    test(backend).await;
}

/// Orders take a few milliseconds here.
fn checking() -> ReconcilerSettings {
    ReconcilerSettings {
        close_delay: Duration::from_millis(300),
        ..quick()
    }
}

async fn sell(env: &TestEnv) -> Arc<Sale> {
    let limited = |item| Item {
        limit_per_buyer: Some(Quantity::new(1).unwrap()),
        ..item
    };
    env.sell_with(UNITS, 2, limited).await
}

/// Buyers at one home empty it. The last order goes to the other segment, and home knows that.
async fn empty_home(sale: &Sale) -> Order {
    let mut last = None;
    for n in 0..4 {
        last = Some(sale.hold(&sale.buyer_at(HOME, n), "key", 1).await);
    }
    let last = sale.recorded(last.unwrap()).await;
    assert_eq!(last.segment, OTHER);
    eventually("home knowing where the order is", async || {
        decision(sale, &last).await.starts_with('E')
    })
    .await;
    sale.all_drained().await;
    last
}

async fn decision(sale: &Sale, order: &Order) -> String {
    let mut get = redis::cmd("HGET");
    get.arg(sale.key("decisions", HOME))
        .arg(&order.id.as_bytes()[..]);
    let stored: Option<String> = sale.redis(&get).await;
    stored.unwrap_or_default()
}

/// What the replica of home's server does not get: a return that home counts, and two orders that
/// home declines. The item is sold out then.
async fn go_on(sale: &Sale, returned: &Order) -> [Order; 2] {
    sale.step(returned.id, OrderState::Cancelled).await;
    eventually("the return of the unit", async || {
        sale.available().await == [3, 0]
    })
    .await;
    let mut off_home = Vec::new();
    for n in 4..6 {
        let id = sale.hold(&sale.buyer_at(HOME, n), "key", 1).await;
        off_home.push(sale.recorded(id).await);
    }
    sale.hold(&sale.buyer_at(OTHER, 0), "key", 1).await;
    sale.all_drained().await;
    assert_eq!(sale.available().await, [0, 0]);
    off_home.try_into().unwrap()
}

async fn is_checked(sale: &Sale) -> bool {
    for segment in 0..2 {
        let segment = sale.inspect(segment).await;
        if segment.history.is_empty() || segment.checked != segment.history {
            return false;
        }
    }
    true
}

async fn pause(sale: &Sale) {
    let change = ItemChange {
        state: Some(ItemState::Paused),
        ..ItemChange::default()
    };
    sale.change(&change).await;
}

/// Repeats of orders that are in the ledger are answered as before, also when home would refuse an
/// order that it does not know.
async fn home_knows(sale: &Sale, [first, second]: &[Order; 2], returned: &Order) {
    eventually("a check of every home", async || is_checked(sale).await).await;
    let late = sale
        .order_patiently(&sale.buyer_at(OTHER, 9), "key", 1)
        .await;
    assert!(is_sold_out(&late), "{late:?}");
    assert_same(sale, &first.buyer, first).await;
    let again = sale.order_patiently(&returned.buyer, "second", 1).await;
    assert!(
        is_sold_out(&again),
        "its unit is not counted any more: {again:?}"
    );
    pause(sale).await;
    assert_same(sale, &second.buyer, second).await;
}

/// By the segments, or from the sold-out cache.
fn is_sold_out(outcome: &Outcome) -> bool {
    outcome.is_sold_out()
}

async fn assert_same(sale: &Sale, buyer: &BuyerId, order: &Order) {
    let repeat = sale.order_patiently(buyer, "key", 1).await;
    assert!(
        matches!(repeat, Outcome::Held { expires_at, .. } if expires_at == order.expires_at),
        "a repeat of an order that the ledger has: {repeat:?}"
    );
}

async fn forgotten_orders(sale: &Sale) -> Vec<serde_json::Value> {
    let entries = sale.journal("forgotten").await.into_iter();
    entries
        .flat_map(|entry| entry.entry.after["orders"].as_array().cloned().unwrap())
        .collect()
}

/// All segments are on one server, which loses what the other segment took as well. The ledger has
/// it, and its repair restores it there and not at home.
#[tested(on_both_databases(crate::forgotten::run))]
async fn a_home_that_lost_its_declines_still_answers_repeats(backend: Backend) {
    let mut group = RedisSentinel::start(1).await.unwrap();
    let env = open_on_failover(backend, group.url()).await;
    env.record().await;
    env.reconcile(checking()).await;
    let sale = sell(&env).await;
    *sale.redis_url.lock().unwrap() = group.servers()[0].url();
    let returned = empty_home(&sale).await;
    group.servers()[0].is_followed_by(1).await.unwrap();
    group.servers()[1].lag().await.unwrap();
    let off_home = go_on(&sale, &returned).await;

    let old = group.kill_master().await.unwrap();
    group.servers()[1 - old].catch_up().await.unwrap();
    let new = group.successor_of(old).await.unwrap();
    *sale.redis_url.lock().unwrap() = group.servers()[new].url();
    sale.comes_to_rest().await;
    home_knows(&sale, &off_home, &returned).await;

    let forgotten = forgotten_orders(&sale).await;
    for order in off_home.iter().chain([&returned]) {
        assert!(
            forgotten.contains(&order.id.to_string().into()),
            "{forgotten:?}"
        );
    }
    close(&env).await;
}

/// Home's server fails alone. It loses no entry of an outbox, so no segment has diverged.
#[tested(on_both_databases(crate::forgotten::run))]
async fn a_home_that_lost_nothing_but_declines_still_answers_repeats(backend: Backend) {
    let mut cluster = RedisCluster::start_with(MASTERS, 1).await.unwrap();
    let env = open_on_failover(backend, cluster.url()).await;
    env.record().await;
    env.reconcile(checking()).await;
    let (sale, home) = loop {
        let sale = sell(&env).await;
        *sale.redis_url.lock().unwrap() = cluster.nodes()[0].url();
        match (shard(&sale, HOME).await, shard(&sale, OTHER).await) {
            (home, other) if home != other => break (sale, home),
            _ => {}
        }
    };
    *sale.redis_url.lock().unwrap() = cluster.nodes()[home].url();
    let returned = empty_home(&sale).await;
    let replica = cluster.shard(home)[1];
    replica_has_all(&sale).await;
    cluster.nodes()[replica].lag().await.unwrap();
    let off_home = go_on(&sale, &returned).await;

    cluster.kill_master(home).await.unwrap();
    cluster.nodes()[replica].catch_up().await.unwrap();
    let new = cluster.until_writable(home).await.unwrap();
    *sale.redis_url.lock().unwrap() = cluster.nodes()[new].url();
    eventually("the new master of home", async || {
        let entries = stock::InspectionEntries::None;
        sale.stock
            .inspect(&sale.segment(HOME), entries)
            .await
            .is_ok()
    })
    .await;
    home_knows(&sale, &off_home, &returned).await;

    assert_eq!(forgotten_orders(&sale).await.len(), 3);
    assert!(sale.journal("diverged").await.is_empty());
    sale.comes_to_rest().await;
    env.stop_services().await;
    assert_eq!(units_counted_at_home(&sale).await, UNITS - 1);
}

async fn units_counted_at_home(sale: &Sale) -> u64 {
    let mut get = redis::cmd("HGETALL");
    get.arg(sale.key("buyers", HOME));
    let counts: BTreeMap<String, u64> = sale.redis(&get).await;
    let buyers = counts
        .into_iter()
        .filter(|(buyer, _)| !buyer.starts_with('\n'));
    buyers.map(|(_, units)| units).sum()
}

/// Waits until the replica of home's server has confirmed every write.
async fn replica_has_all(sale: &Sale) {
    eventually("a replica that has all", async || {
        let info: String = sale.redis(redis::cmd("INFO").arg("replication")).await;
        let field = |name: &str| {
            let (_, rest) = info.split_once(name).unwrap_or_default();
            rest.split([',', '\r'])
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        let (written, confirmed) = (field("master_repl_offset:"), field(",offset="));
        !written.is_empty() && written == confirmed
    })
    .await;
}

/// The shard that has the segment at first.
async fn shard(sale: &Sale, segment: u16) -> usize {
    let mut cmd = redis::cmd("CLUSTER");
    cmd.arg("KEYSLOT").arg(sale.key("stock", segment));
    let slot: usize = sale.redis(&cmd).await;
    (0..MASTERS)
        .rfind(|shard| slot >= 16_384 * shard / MASTERS)
        .unwrap()
}
