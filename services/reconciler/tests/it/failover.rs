//! The master dies, and a replica that lagged takes its place, in the middle of a rush.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use domain::{Item, OrderId, Quantity};
use stock::{Acknowledge, Ask, Outcome};
use testbed::RedisSentinel;
use tokio::task::JoinSet;

use crate::shop::{Kind, Sale, Shop, buyer, is_held, quick};

/// What a buyer was told when the ledger had the order.
struct Acknowledged {
    n: usize,
    id: OrderId,
    expires_at: jiff::Timestamp,
}

/// Buyers who come one after the other, each with one order, and ask until they are answered, as their clients do.
#[derive(Default)]
struct Rush {
    stop: AtomicBool,
    next: AtomicUsize,
    acknowledged: Mutex<Vec<Acknowledged>>,
}

impl Rush {
    fn start(self: &Arc<Self>, sale: &Arc<Sale>) -> JoinSet<()> {
        let mut buyers = JoinSet::new();
        for _ in 0..12 {
            let (rush, sale) = (Arc::clone(self), Arc::clone(sale));
            buyers.spawn(async move {
                while !rush.stop.load(Ordering::SeqCst) {
                    rush.buy(&sale, rush.next.fetch_add(1, Ordering::SeqCst))
                        .await;
                }
            });
        }
        buyers
    }

    async fn buy(&self, sale: &Sale, n: usize) {
        let since = Instant::now();
        let ask = Ask {
            acknowledge: Acknowledge::Recorded,
            within: Duration::from_secs(2),
            ..sale.ask(&buyer(n), "key", 1)
        };
        loop {
            match sale.try_order(ask.clone()).await {
                Ok(Outcome::Held {
                    expires_at,
                    recorded,
                    ..
                }) => {
                    break self
                        .note(sale, n, ask.order, recorded.then_some(expires_at))
                        .await;
                }
                Ok(outcome) => panic!("{n}: {outcome:?}"),
                Err(error) => assert!(since.elapsed() < Duration::from_secs(40), "{n}: {error}"),
            }
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }

    /// What was asked for again may be in Redis only: who is told so by HTTP waits for the ledger, and so do we.
    async fn note(&self, sale: &Sale, n: usize, id: OrderId, told: Option<jiff::Timestamp>) {
        let since = Instant::now();
        while sale.state(id).await.is_none() {
            if since.elapsed() > Duration::from_secs(2) {
                return Box::pin(self.buy(sale, n)).await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let expires_at = sale.recorded(id).await.expires_at;
        assert_eq!(told.unwrap_or(expires_at), expires_at, "order {n}");
        self.acknowledged
            .lock()
            .unwrap()
            .push(Acknowledged { n, id, expires_at });
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    async fn goes_on(&self, orders: usize) {
        let before = self.count();
        crate::shop::eventually("orders that are acknowledged", async || {
            self.count() >= before + orders
        })
        .await;
    }
}

async fn a_failover_to_a_replica_that_lags_loses_nothing_that_was_acknowledged(kind: Kind) {
    let mut group = RedisSentinel::start(1).await.unwrap();
    let shop = Arc::new(Shop::new(kind, group.url()).await);
    shop.record().await;
    shop.reconcile(quick()).await;
    let sale = shop
        .sell_with(100_000, 4, |item| Item {
            limit_per_buyer: Some(Quantity::new(2).unwrap()),
            ..item
        })
        .await;
    *sale.redis_url.lock().unwrap() = group.servers()[0].url();
    group.servers()[0].is_followed_by(1).await.unwrap();

    let rush = Arc::new(Rush::default());
    let buyers = rush.start(&sale);
    rush.goes_on(200).await;
    let epochs = sale.epochs().await;
    group.servers()[1].lag().await.unwrap();
    rush.goes_on(200).await;
    let old = group.kill_master().await.unwrap();
    let killed = Instant::now();
    group.servers()[1 - old].catch_up().await.unwrap();
    let new = group.successor_of(old).await.unwrap();
    let promoted = Instant::now();
    *sale.redis_url.lock().unwrap() = group.servers()[new].url();
    // Every segment had sold something that the replica did not have.
    crate::shop::eventually("mending every segment", async || {
        sale.journal("mend").await.len() >= 4
    })
    .await;
    let healed = promoted.elapsed();
    assert!(
        healed < Duration::from_secs(10),
        "healed only {healed:?} after the promotion"
    );
    rush.goes_on(200).await;
    rush.stop.store(true, Ordering::SeqCst);
    buyers.join_all().await;
    eprintln!(
        "{kind:?}: promoted {:?} after the kill, healed {healed:?} after the promotion, {} orders acknowledged",
        promoted - killed,
        rush.count()
    );
    sale.comes_to_rest().await;
    assert!(
        sale.epochs()
            .await
            .iter()
            .zip(&epochs)
            .all(|(now, before)| now > before),
        "every segment has a new epoch"
    );

    let acknowledged = std::mem::take(&mut *rush.acknowledged.lock().unwrap());
    for Acknowledged { n, id, expires_at } in &acknowledged {
        let order = sale.recorded(*id).await;
        assert_eq!(
            (order.expires_at, order.attempt),
            (*expires_at, 0),
            "order {n}"
        );
        let again = sale.order(&buyer(*n), "key", 1).await;
        assert!(
            matches!(again, Outcome::Held { expires_at, .. } if expires_at == order.expires_at),
            "order {n}: {again:?}"
        );
    }
    sale.comes_to_rest().await;
    assert_eq!(
        sale.available().await.iter().sum::<u64>(),
        100_000 - acknowledged.len() as u64,
        "repeats took nothing"
    );
    let (first, fresh) = (acknowledged[0].n, acknowledged.len() + 100);
    assert!(is_held(&sale.order(&buyer(first), "second", 1).await));
    assert_eq!(
        sale.order(&buyer(first), "third", 1).await,
        Outcome::BuyerLimitReached
    );
    assert!(
        is_held(&sale.order(&buyer(fresh), "key", 1).await),
        "a fresh order"
    );
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_with_a_ledger_on_sqlite() {
    a_failover_to_a_replica_that_lags_loses_nothing_that_was_acknowledged(Kind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_with_a_ledger_on_postgres() {
    a_failover_to_a_replica_that_lags_loses_nothing_that_was_acknowledged(Kind::Postgres).await;
}
