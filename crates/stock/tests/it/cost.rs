//! What an order costs here: commands of Redis exactly, and allocations at most. A slower design
//! fails, on any machine.
//!
//! Everything runs on one thread, with its own server: orders that start together have all
//! reached their batcher before it is emptied, so they are one batch; and no other work is
//! counted. `docs/performance.md`, "Guards", has the table.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cost::{Bound, commands, fewest_allocations};
use domain::BuyerId;
use futures::future::join_all;
use stock::{ItemStock, Outcome, Reservation, Stock, StockSettings};
use testbed::Redis;
use tokio::{runtime::Runtime, task::unconstrained};

use crate::{
    crowd::{held, sold_out},
    sale::{self, Sale, Terms, buyer, is_held},
    site::{self, Site},
};

/// A lone order, and as many as a busy batcher may well carry.
const BATCHES: [usize; 2] = [1, 128];

/// Runs a test with its own server.
async fn alone(test: impl AsyncFnOnce(Arc<Site>)) {
    let server = Redis::start().await.unwrap();
    site::run(Site::at(server.url(), vec![server.url()]).await, test).await;
}

/// An item on sale at an instance that calls an empty item so for the whole test: looks at it would
/// be counted, and come with the clock.
async fn open(site: &Arc<Site>, terms: Terms) -> Arc<Sale> {
    sale::open_with(site, terms, patient(site).await).await
}

async fn patient(site: &Site) -> Arc<Stock> {
    site.instance_with(StockSettings {
        sold_out_cache_ttl: Duration::from_secs(3600),
        ..site.settings()
    })
    .await
}

type AtOnce<'a> = Pin<Box<dyn Future<Output = Vec<Outcome>> + 'a>>;

/// Orders that leave together, once this is awaited. Unconstrained, or tokio would have them take
/// turns with the batcher before all are in it.
fn at_once(item: &ItemStock, reservations: Vec<Reservation>) -> AtOnce<'_> {
    let orders = join_all(
        reservations
            .into_iter()
            .map(|reservation| item.order(reservation)),
    );
    Box::pin(unconstrained(async {
        orders.await.into_iter().map(Result::unwrap).collect()
    }))
}

/// Asks of buyers, one unit each.
fn reservations(
    sale: &Sale,
    key: &str,
    buyers: impl IntoIterator<Item = BuyerId>,
) -> Vec<Reservation> {
    buyers
        .into_iter()
        .map(|buyer| sale.reservation(&buyer, key, 1))
        .collect()
}

/// What the server runs until the orders are answered.
async fn cost_of(
    site: &Site,
    item: &ItemStock,
    reservations: Vec<Reservation>,
) -> (Vec<Outcome>, BTreeMap<String, u64>) {
    commands(&site.url, at_once(item, reservations))
        .await
        .unwrap()
}

fn calls(expected: &[(&str, u64)]) -> BTreeMap<String, u64> {
    expected
        .iter()
        .map(|(command, calls)| ((*command).to_owned(), *calls))
        .collect()
}

/// reserve_home: one EVALSHA and TIME; HMGET of the stock, of the answers and of the buyers'
/// counts; XADD for all that were taken; HSET of the stock, the counts and the answers; XLEN, to
/// know whether the recorder sleeps.
const TAKE: [(&str, u64); 6] = [
    ("evalsha", 1),
    ("time", 1),
    ("hmget", 3),
    ("xadd", 1),
    ("hset", 3),
    ("xlen", 1),
];

#[tokio::test]
async fn a_batch_that_takes_costs_ten_commands_whatever_its_size() {
    alone(async |site| {
        let sale = open(&site, Terms::new(10_000, 1).limit(1)).await;
        let item = sale.at_first();
        assert!(
            sale.sells(&buyer(0), "k", 1).await,
            "from now on the instance knows the item"
        );
        let mut first = 1;
        for batch in BATCHES {
            let (outcomes, cost) = cost_of(
                &site,
                &item,
                reservations(&sale, "k", (first..first + batch).map(buyer)),
            )
            .await;
            assert_eq!(
                (held(&outcomes), cost),
                (batch, calls(&TAKE)),
                "{batch} orders"
            );
            first += batch;
        }
        // The recorder has recorded everything and sleeps: a message wakes it.
        let last = sale.entries(0).await.last().unwrap().id;
        sale.trim(0, last).await;
        let (_, cost) = cost_of(
            &site,
            &item,
            reservations(&sale, "k", (first..first + 128).map(buyer)),
        )
        .await;
        assert_eq!(cost, calls(&[&TAKE[..], &[("publish", 1)]].concat()));
    })
    .await;
}

/// reserve_home without a write: EVALSHA and TIME, and the three HMGET.
const LOOK: [(&str, u64); 3] = [("evalsha", 1), ("time", 1), ("hmget", 3)];

#[tokio::test]
async fn a_batch_of_repeats_or_above_the_limit_costs_five_commands_whatever_its_size() {
    alone(async |site| {
        let sale = open(&site, Terms::new(10_000, 1).limit(1)).await;
        let item = sale.at_first();
        let buyers = || (0..128).map(buyer);
        assert_eq!(
            held(&at_once(&item, reservations(&sale, "k", buyers())).await),
            128
        );
        for batch in BATCHES {
            let (outcomes, cost) =
                cost_of(&site, &item, reservations(&sale, "k", buyers().take(batch))).await;
            assert!(
                outcomes
                    .iter()
                    .all(|outcome| matches!(outcome, Outcome::Held { replayed: true, .. }))
            );
            assert_eq!(cost, calls(&LOOK), "{batch} repeats");
            let (outcomes, cost) = cost_of(
                &site,
                &item,
                reservations(&sale, "another", buyers().take(batch)),
            )
            .await;
            assert!(
                outcomes
                    .iter()
                    .all(|outcome| *outcome == Outcome::BuyerLimitReached)
            );
            assert_eq!(cost, calls(&LOOK), "{batch} orders above the limit");
        }
    })
    .await;
}

/// Another instance buys everything that `segment` has, so that the first one does not notice.
async fn buy_up(site: &Site, sale: &Sale, segment: u16) {
    let left = sale.dump(segment).await.available();
    let other = patient(site).await.item(&sale.item);
    let rivals = (0..)
        .map(|n| BuyerId::new(format!("rival-{n}")).unwrap())
        .filter(|rival| rival.home(sale.item.segments) == segment);
    let outcomes = at_once(
        &other,
        reservations(sale, "k", rivals.take(usize::try_from(left).unwrap())),
    )
    .await;
    assert_eq!(held(&outcomes) as u64, left);
}

#[tokio::test]
async fn a_batch_that_finds_the_only_segment_empty_costs_seven_commands_whatever_its_size() {
    for batch in BATCHES {
        alone(async |site| {
            let sale = open(&site, Terms::new(200, 1).limit(1)).await;
            assert!(
                sale.sells(&buyer(0), "k", 1).await,
                "now the instance has seen 199 units left"
            );
            buy_up(&site, &sale, 0).await;
            let (outcomes, cost) = cost_of(
                &site,
                &sale.at_first(),
                reservations(&sale, "k", (1..=batch).map(buyer)),
            )
            .await;
            assert_eq!(sold_out(&outcomes), batch);
            // The decision on each is stored (HSET), with its due time (ZADD).
            assert_eq!(
                cost,
                calls(&[
                    ("evalsha", 1),
                    ("time", 1),
                    ("hmget", 3),
                    ("hset", 1),
                    ("zadd", 1)
                ]),
                "{batch} orders"
            );
        })
        .await;
    }
}

#[tokio::test]
async fn a_batch_whose_home_is_empty_costs_three_scripts_whatever_its_size() {
    for batch in BATCHES {
        alone(async |site| {
            let sale = open(&site, Terms::new(400, 2).limit(1)).await;
            assert!(
                sale.sells(&sale.buyer_at(1, 0), "k", 1).await,
                "now the instance knows the item"
            );
            buy_up(&site, &sale, 0).await;
            let off_home = (0..batch).map(|n| sale.buyer_at(0, n)).collect::<Vec<_>>();
            let item = sale.at_first();
            let (outcomes, cost) = commands(&site.url, async {
                let outcomes = at_once(&item, reservations(&sale, "k", off_home)).await;
                // Home is notified in the background.
                sale.stock.shutdown().await;
                outcomes
            })
            .await
            .unwrap();
            assert_eq!(held(&outcomes), batch);
            let each = batch as u64;
            let expected = calls(&[
                ("evalsha", 3),
                ("time", 3),
                // Three at home; the stock and the answers at the next segment.
                ("hmget", 3 + 2),
                // Counts and answers at home; stock and answers at the next; and then home learns
                // of each order where it went.
                ("hset", 2 + 2 + each),
                ("hget", 1 + each),
                ("zadd", 1 + each),
                ("xadd", 1),
                ("xlen", 1),
            ]);
            assert_eq!(cost, expected, "{batch} orders");
        })
        .await;
    }
}

#[tokio::test]
async fn a_shed_order_costs_no_command() {
    alone(async |site| {
        let sale = open(&site, Terms::new(3, 3).limit(1)).await;
        for n in 0..3 {
            assert!(sale.sells(&buyer(n), "k", 1).await);
        }
        // One look at each segment, and at who holds something there: that takes the sold-out
        // cache.
        assert_eq!(sale.order(&buyer(9), "k", 1).await, Outcome::Shed);
        let (outcomes, cost) = cost_of(
            &site,
            &sale.at_first(),
            reservations(&sale, "k", (1000..11_000).map(buyer)),
        )
        .await;
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Shed));
        assert_eq!(cost, calls(&[]), "10,000 refusals");
    })
    .await;
}

/// Runs a test of allocations. It is not asynchronous, because it counts around the runtime.
fn counting(units: u64, test: impl FnOnce(&Counted<'_>)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(Redis::start()).unwrap();
    let site = Arc::new(runtime.block_on(Site::at(server.url(), vec![server.url()])));
    let sale = runtime.block_on(open(&site, Terms::new(units, 1).limit(1)));
    test(&Counted {
        runtime: &runtime,
        sale: &sale,
    });
    runtime.block_on(site::close(&site));
}

struct Counted<'a> {
    runtime: &'a Runtime,
    sale: &'a Sale,
}

impl Counted<'_> {
    /// Holds orders of one key against the bound, as many at once as each round has buyers: from
    /// the call to the answer, with their batch's way to Redis and back. The ask and the future
    /// itself are the caller's.
    fn check(
        &self,
        bound: Bound,
        key: &str,
        mut round: impl FnMut() -> Vec<BuyerId>,
        is_right: fn(&Outcome) -> bool,
    ) {
        let (item, mut orders) = (self.sale.at_first(), 0);
        let prepare = || {
            let reservations = reservations(self.sale, key, round());
            orders = reservations.len();
            at_once(&item, reservations)
        };
        let run = |orders| {
            assert!(
                self.runtime
                    .block_on::<AtOnce<'_>>(orders)
                    .iter()
                    .all(is_right)
            )
        };
        let spent = fewest_allocations(prepare, run);
        bound.check(spent, orders);
    }
}

/// Buyers who have not been there before, so many in each round.
fn newcomers(batch: usize) -> impl FnMut() -> Vec<BuyerId> {
    static NEXT: AtomicUsize = AtomicUsize::new(1_000_000);
    move || {
        let first = NEXT.fetch_add(batch, Ordering::Relaxed);
        (first..first + batch).map(buyer).collect()
    }
}

#[test]
fn an_order_allocates_no_more_than_it_may() {
    counting(100_000, |counted| {
        counted.check(
            Bound {
                what: "an order at batch 1",
                most: 33.0,
            },
            "k",
            newcomers(1),
            is_held,
        );
        counted.check(
            Bound {
                what: "an order at batch 128",
                most: 5.0,
            },
            "k",
            newcomers(128),
            is_held,
        );
    });
}

#[test]
fn a_repeat_allocates_no_more_than_it_may() {
    counting(1000, |counted| {
        let buyers = || (0..128).map(buyer).collect();
        counted.check(
            Bound {
                what: "a repeat at batch 128",
                most: 7.2,
            },
            "k",
            buyers,
            is_held,
        );
    });
}

#[test]
fn a_shed_order_allocates_no_more_than_it_may() {
    counting(1, |counted| {
        let Counted { runtime, sale } = counted;
        assert!(is_held(
            &runtime.block_on(sale.try_order(&buyer(0), "k", 1)).unwrap()
        ));
        let is_shed = |outcome: &Outcome| *outcome == Outcome::Shed;
        counted.check(
            Bound {
                what: "a refusal by the sold_out_cache",
                most: 0.1,
            },
            "k",
            newcomers(128),
            is_shed,
        );
    });
}
