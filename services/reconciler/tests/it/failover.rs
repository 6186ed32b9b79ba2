//! The master dies, and a replica that lagged takes its place, in the middle of a rush.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use domain::{Item, OrderId, Quantity};
use stock::{Acknowledge, Outcome, Reservation};
use testbed::RedisSentinel;
use testkit::{Backend, Deadline, Sale, buyer, eventually, is_held};
use tokio::task::JoinSet;

use crate::{
    env::{close, open_on_failover, quick},
    unresponsive::UnresponsiveLedger,
};

/// Rounds of the reconciler in which a promoted server is repaired at the latest: half a minute of
/// them, if each takes no time. Some fail until its client has found the new master.
const HEALED_ROUNDS_MAX: usize = 1_500;

/// The acknowledgement of an order that the ledger has.
struct Acknowledged {
    n: usize,
    id: OrderId,
    expires_at: jiff::Timestamp,
}

/// Buyers with one order each, who repeat it until it is answered, as clients do.
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
        let deadline = Deadline::start();
        let ask = Reservation {
            acknowledge: Acknowledge::Recorded,
            // An order that the failover has lost is never recorded, so it is repeated.
            within: Duration::from_secs(2),
            ..sale.reservation(&buyer(n), "key", 1)
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
                Err(error) => deadline.check(format_args!("{n}: {error}")),
            }
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }

    /// A repeated order may be in Redis only. The HTTP service waits for the ledger before it
    /// answers, and so does this test.
    async fn note(
        &self,
        sale: &Sale,
        n: usize,
        id: OrderId,
        acknowledged: Option<jiff::Timestamp>,
    ) {
        let since = Instant::now();
        while sale.state(id).await.is_none() {
            if since.elapsed() > Duration::from_secs(2) {
                return Box::pin(self.buy(sale, n)).await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let expires_at = sale.recorded(id).await.expires_at;
        assert_eq!(acknowledged.unwrap_or(expires_at), expires_at, "order {n}");
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
        eventually("orders that are acknowledged", async || {
            self.count() >= before + orders
        })
        .await;
    }
}

async fn a_failover_to_a_lagging_replica_loses_no_acknowledged_order(backend: Backend) {
    let mut group = RedisSentinel::start(1).await.unwrap();
    let env = open_on_failover(backend, group.url()).await;
    env.record().await;
    let ledger = UnresponsiveLedger::that_counts(env.ledger().await);
    env.reconcile_on(Arc::clone(&ledger) as _, quick()).await;
    let sale = env
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
    let (promoted, rounds) = (Instant::now(), ledger.rounds());
    *sale.redis_url.lock().unwrap() = group.servers()[new].url();
    // Every segment had sold units that the replica did not have.
    eventually("repair every segment", async || {
        sale.journal("repair").await.len() >= 4
    })
    .await;
    let (healed, rounds) = (promoted.elapsed(), ledger.rounds() - rounds);
    assert!(
        rounds < HEALED_ROUNDS_MAX,
        "healed only {rounds} rounds after the promotion"
    );
    rush.goes_on(200).await;
    rush.stop.store(true, Ordering::SeqCst);
    buyers.join_all().await;
    eprintln!(
        "{backend:?}: promoted {:?} after the kill, healed {healed:?} and {rounds} rounds after the promotion, {} orders acknowledged",
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
        let again = sale.order_patiently(&buyer(*n), "key", 1).await;
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
    let order = async |n: usize, key: &'static str| sale.order_patiently(&buyer(n), key, 1).await;
    assert!(is_held(&order(first, "second").await));
    assert_eq!(order(first, "third").await, Outcome::BuyerLimitReached);
    assert!(is_held(&order(fresh, "key").await), "a fresh order");
    close(&env).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_with_a_ledger_on_sqlite() {
    a_failover_to_a_lagging_replica_loses_no_acknowledged_order(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_with_a_ledger_on_postgres() {
    a_failover_to_a_lagging_replica_loses_no_acknowledged_order(Backend::Postgres).await;
}
