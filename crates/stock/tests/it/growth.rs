//! A cluster grows: the keys of a segment move to another master while orders use them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use stock::{Outcome, Reservation, StockError};
use testbed::{Redis, RedisCluster};

use crate::{
    crowd::{all_answered, at_once, held},
    sale::{self, Sale, Terms, is_held},
    site::{self, Site},
};

/// Orders at the segment that moves, and as many at another one, after each key.
const ORDERS: usize = 3;
const HERE: u16 = 0;
const ELSEWHERE: u16 = 1;
const IMPATIENCE: Duration = Duration::from_millis(800);

fn orders(sale: &Sale, home: u16, step: usize) -> Vec<Reservation> {
    let buyers = (0..ORDERS).map(|n| sale.buyer_at(home, step * ORDERS + n));
    buyers
        .map(|buyer| sale.reservation(&buyer, "k", 1))
        .collect()
}

/// The same orders with another time limit.
fn within(limit: Duration, mut orders: Vec<Reservation>) -> Vec<Reservation> {
    for order in &mut orders {
        order.within = limit;
    }
    orders
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_of_a_segment_that_moves_wait_or_are_refused_and_all_are_held_once() {
    let mut cluster = RedisCluster::start(3).await.unwrap();
    let urls = cluster.nodes().iter().map(Redis::url).collect();
    let site = Site::at(cluster.url(), urls).await;
    let site = Arc::new(site.with_silent_servers());
    let mut sale = sale::open(&site, Terms::new(400, 2)).await;
    let mut slots = slots(&cluster, &sale).await;
    while is_on_one_master(&cluster, slots).await {
        sale = sale::open(&site, Terms::new(400, 2)).await;
        slots = self::slots(&cluster, &sale).await;
    }
    let mut sent = orders(&sale, HERE, 0);
    assert_eq!(
        held(&all_answered(&[sale.at_first()], sent.clone()).await),
        ORDERS
    );

    let instance = [sale.at_first()];
    let new = cluster.grow().await.unwrap();
    let migration = cluster.begin_migration(slots[0], new).await.unwrap();
    let keys = cluster.keys_to_migrate(&migration).await.unwrap();
    assert!(keys.len() >= 3, "{keys:?}");
    let mut failed = 0;
    for (step, key) in keys.iter().enumerate() {
        cluster.migrate_key(&migration, key).await.unwrap();
        let here = orders(&sale, HERE, step + 1);
        let there = orders(&sale, ELSEWHERE, step + 1);
        let begun = Instant::now();
        let (answers, others) = tokio::join!(
            at_once(&instance, within(IMPATIENCE, here.clone())),
            at_once(&instance, there),
        );
        println!(
            "{} of {} keys moved: {answers:?} in {:?}",
            step + 1,
            keys.len(),
            begun.elapsed()
        );
        for answer in answers {
            match answer {
                Ok(outcome) => assert!(is_held(&outcome), "{outcome:?}"),
                Err(error) => {
                    let is_unknown = matches!(error, StockError::OutcomeUnknown(_));
                    assert!(is_unknown || error.proves_unchanged(), "{error}");
                    assert!(error.is_retryable());
                    failed += 1;
                }
            }
        }
        assert!(
            others.iter().all(|other| other.as_ref().is_ok_and(is_held)),
            "orders of another segment do not wait for the keys: {others:?}"
        );
        sent.extend(here);
    }
    assert!(failed > 0, "keys on two servers let no script run");

    cluster.end_migration(migration).await.unwrap();
    let again = sent;
    let count = again.len();
    let outcomes = all_answered(&[sale.at_first()], again).await;
    assert_eq!(held(&outcomes), count, "{outcomes:?}");
    let repeated = |outcome: &&Outcome| matches!(outcome, Outcome::Held { replayed: true, .. });
    assert!(outcomes.iter().filter(repeated).count() >= count - failed);
    let there = ORDERS * keys.len();
    assert_eq!(sale.available().await, 400 - (count + there) as u64);
    site::close(&site).await;
}

async fn slots(cluster: &RedisCluster, sale: &Sale) -> [u16; 2] {
    let slot = async |segment| {
        let key = sale.names(segment).stock;
        cluster.slot_of(key.as_bytes()).await.unwrap()
    };
    [slot(HERE).await, slot(ELSEWHERE).await]
}

async fn is_on_one_master(cluster: &RedisCluster, slots: [u16; 2]) -> bool {
    let owner = async |slot| cluster.owner_of(slot).await.unwrap();
    owner(slots[0]).await == owner(slots[1]).await
}
