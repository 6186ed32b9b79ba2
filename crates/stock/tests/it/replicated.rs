//! Orders that replicas must confirm.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{BuyerId, Durability};
use stock::{InspectionEntries, Outcome, Reservation, Stock, StockError, StockSettings};
use testbed::{Redis, RedisCluster, RedisUser, timeout};

use crate::{
    crowd::{all_answered, at_once, held},
    sale::{self, Sale, Terms, buyer, eventually, is_held},
    site::{self, Site, patient},
};

fn replicated(stock: u64, segments: u16) -> Terms {
    Terms {
        durability: Durability::Replicated,
        ..Terms::new(stock, segments)
    }
}

/// A master and its replicas, of which so many must confirm.
struct Servers {
    master: Redis,
    replicas: Vec<Redis>,
}

impl Servers {
    async fn start(replicas: usize) -> Self {
        let mut servers = Self {
            master: Redis::start().await.unwrap(),
            replicas: Vec::new(),
        };
        for _ in 0..replicas {
            servers.replicas.push(
                Redis::builder()
                    .replica_of(&servers.master)
                    .start()
                    .await
                    .unwrap(),
            );
        }
        servers.follow().await;
        servers
    }

    /// Waits until every replica has everything.
    async fn follow(&self) {
        self.master
            .is_followed_by(self.replicas.len())
            .await
            .unwrap();
    }

    async fn site(&self) -> Site {
        Site::at(self.master.url(), vec![self.master.url()]).await
    }
}

async fn open(site: &Arc<Site>, terms: Terms, replicas: u16) -> Arc<Sale> {
    let settings = StockSettings {
        replicas,
        ..site.settings()
    };
    sale::open_with(site, terms, site.instance_with(settings).await).await
}

fn briefly(sale: &Sale, buyer: &BuyerId) -> Reservation {
    Reservation {
        within: Duration::from_millis(700),
        ..sale.reservation(buyer, "k", 1)
    }
}

fn is_unknown(outcome: &Result<Outcome, StockError>) -> bool {
    matches!(outcome, Err(StockError::OutcomeUnknown(_)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_is_unknown_while_no_replica_has_it_and_nothing_is_undone() {
    let servers = Servers::start(1).await;
    site::run(servers.site().await, async |site: Arc<Site>| {
        let sale = open(&site, replicated(100, 2), 1).await;
        assert!(sale.sells(&buyer(0), "k", 1).await);
        servers.follow().await;
        servers.replicas[0].lag().await.unwrap();
        let reservations: Vec<_> = (1..9).map(|n| briefly(&sale, &buyer(n))).collect();
        // Each has been requested several times meanwhile: a repeat finds its answer, writes
        // nothing, and must not be confirmed for that.
        assert!(
            at_once(&[sale.at_first()], reservations.clone())
                .await
                .iter()
                .all(is_unknown)
        );
        assert_eq!(sale.available().await, 91, "the units are theirs");
        assert!(
            at_once(&[sale.instance().await], reservations.clone())
                .await
                .iter()
                .all(is_unknown),
            "nor from another process"
        );
        servers.replicas[0].catch_up().await.unwrap();
        let outcomes = all_answered(&[sale.at_first()], reservations).await;
        assert!(
            outcomes
                .iter()
                .all(|outcome| matches!(outcome, Outcome::Held { replayed: true, .. })),
            "{outcomes:?}"
        );
        assert_eq!(sale.available().await, 91);
    })
    .await;
}

const SHOP: RedisUser = RedisUser {
    name: "shop",
    password: "secret",
};

/// The script may run, and what follows it may not: the answer looks like a refusal of the order,
/// and the units are taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_ran_is_unknown_if_its_confirmation_is_refused() {
    let servers = Servers::start(1).await;
    servers.master.create_user(&SHOP).await.unwrap();
    let url = SHOP.at(&servers.master.url());
    let site = Site::at(url, vec![servers.master.url()]).await;
    site::run(site, async |site: Arc<Site>| {
        let sale = open(&site, replicated(10, 1), 1).await;
        assert!(sale.sells(&buyer(0), "k", 1).await);
        for (n, right) in [(1, "set"), (2, "wait")] {
            let mut forbid = redis::cmd("ACL");
            forbid.arg("SETUSER").arg(SHOP.name);
            let () = sale.redis(forbid.arg(format!("-{right}"))).await;
            let outcome = sale.at_first().order(briefly(&sale, &buyer(n))).await;
            assert!(is_unknown(&outcome), "without {right}: {outcome:?}");
            assert_eq!(sale.available().await, 9 - n as u64, "without {right}");
            servers.master.create_user(&SHOP).await.unwrap();
            let outcome = sale.order(&buyer(n), "k", 1).await;
            let is_replayed = matches!(outcome, Outcome::Held { replayed: true, .. });
            assert!(is_replayed, "without {right}: {outcome:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_not_made_of_a_missing_replica() {
    let servers = Servers::start(1).await;
    site::run(servers.site().await, async |site: Arc<Site>| {
        let sale = open(&site, replicated(2, 2).limit(1), 1).await;
        let ann = sale.buyer_at(0, 0);
        assert!(sale.sells(&ann, "k", 1).await);
        servers.follow().await;
        servers.replicas[0].lag().await.unwrap();
        let spillovers_on = sale.buyer_at(0, 1);
        assert!(is_unknown(
            &sale.at_first().order(briefly(&sale, &spillovers_on)).await
        ));
        servers.replicas[0].catch_up().await.unwrap();
        assert!(sale.sells(&spillovers_on, "k", 1).await);
        assert_eq!(
            sale.order(&ann, "second", 1).await,
            Outcome::BuyerLimitReached
        );
        assert!(sale.order(&sale.buyer_at(1, 0), "k", 1).await.is_sold_out());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segment_that_lost_its_decisions_stays_incomplete_until_it_is_repaired() {
    let servers = Servers::start(1).await;
    site::run(servers.site().await, async |site: Arc<Site>| {
        let sale = open(&site, replicated(10, 1), 1).await;
        let ann = buyer(0);
        assert!(sale.sells(&ann, "k", 1).await);
        let decisions = sale.names(0).decisions;
        let rename = async |from: &str, to: &str| -> () {
            sale.redis(redis::cmd("RENAME").arg(from).arg(to)).await
        };
        let kept = format!("kept:{decisions}");
        rename(&decisions, &kept).await;
        for attempt in 0..3 {
            let repeat = sale.try_order(&ann, "k", 1).await;
            assert!(
                matches!(repeat, Err(StockError::Missing(_))),
                "{attempt}: the decision on this order is gone: {repeat:?}"
            );
        }
        let entries = InspectionEntries::None;
        let segment = sale.stock.inspect(&sale.segment(0), entries).await.unwrap();
        assert!(!segment.whole, "the repair finds it by this");
        assert_eq!(segment.available, 9, "nothing is taken");
        rename(&kept, &decisions).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_replicas_must_confirm_as_were_asked_for() {
    let servers = Servers::start(2).await;
    // How many must confirm, how many lag, whether an order is acknowledged.
    let table = [
        (1, 0, true),
        (1, 1, true),
        (1, 2, false),
        (2, 0, true),
        (2, 1, false),
        (2, 2, false),
    ];
    site::run(servers.site().await, async |site: Arc<Site>| {
        for (replicas, lagging, acknowledged) in table {
            let sale = open(&site, replicated(10, 1), replicas).await;
            servers.follow().await;
            for replica in &servers.replicas[..lagging] {
                replica.lag().await.unwrap();
            }
            let order = match acknowledged {
                true => sale.reservation(&buyer(0), "k", 1),
                false => briefly(&sale, &buyer(0)),
            };
            let outcome = sale.at_first().order(order).await;
            let expected = if acknowledged {
                outcome.as_ref().is_ok_and(is_held)
            } else {
                is_unknown(&outcome)
            };
            assert!(
                expected,
                "{replicas} must confirm, {lagging} of 2 lag: {outcome:?}"
            );
            for replica in &servers.replicas[..lagging] {
                replica.catch_up().await.unwrap();
            }
            servers.follow().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledged_order_survives_the_promotion_of_a_replica_that_has_it_and_of_no_other() {
    for (durability, promoted, survives) in [
        (Durability::Replicated, "the replica that confirmed", true),
        // Documented: one of two is not both.
        (Durability::Replicated, "the replica that did not", false),
        (Durability::Accepted, "the replica that did not", false),
    ] {
        let mut servers = Servers::start(2).await;
        let site = Arc::new(servers.site().await);
        let sale = open(
            &site,
            Terms {
                durability,
                ..Terms::new(10, 1)
            },
            1,
        )
        .await;
        servers.follow().await;
        servers.replicas[1].lag().await.unwrap();
        assert!(sale.sells(&buyer(0), "k", 1).await);
        servers.master.kill().await.unwrap();
        let chosen = &servers.replicas[usize::from(!survives)];
        chosen.notices_its_masters_end().await.unwrap();
        chosen.catch_up().await.unwrap();
        chosen.promote().await.unwrap();
        let stock = Stock::connect(patient(chosen.url())).await.unwrap();
        let unreplicated = domain::Item {
            durability: Durability::Accepted,
            ..sale.item.clone()
        };
        let again = stock
            .item(&unreplicated)
            .order(sale.reservation(&buyer(0), "k", 1))
            .await
            .unwrap();
        assert!(
            matches!(again, Outcome::Held { replayed, .. } if replayed == survives),
            "{durability}, {promoted}: {again:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_script_is_brought_back_and_confirmed() {
    let servers = Servers::start(1).await;
    site::run(servers.site().await, async |site: Arc<Site>| {
        let sale = open(&site, replicated(10, 2), 1).await;
        let () = sale.redis(redis::cmd("SCRIPT").arg("FLUSH")).await;
        assert!(sale.sells(&buyer(0), "k", 1).await);
    })
    .await;
}

/// What a confirmation costs, for the record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_confirmed() {
    let servers = Servers::start(1).await;
    site::run(servers.site().await, async |site: Arc<Site>| {
        for durability in [Durability::Accepted, Durability::Replicated] {
            let sale = open(
                &site,
                Terms {
                    durability,
                    ..Terms::new(3000, 4)
                },
                1,
            )
            .await;
            let reservations: Vec<_> = (0..3000)
                .map(|n| sale.reservation(&buyer(n), "k", 1))
                .collect();
            let began = Instant::now();
            assert_eq!(
                held(&all_answered(&[sale.at_first()], reservations).await),
                3000
            );
            println!(
                "3000 {durability} orders at once: {:.0} ms",
                began.elapsed().as_secs_f64() * 1000.0
            );
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_each_shard_vouches_for_its_own_replicas_and_survives_its_master() {
    let mut cluster = RedisCluster::start_with(3, 1).await.unwrap();
    let site = Arc::new(
        Site::at(
            cluster.url(),
            cluster.nodes()[..3].iter().map(Redis::url).collect(),
        )
        .await
        .with_silent_servers(),
    );
    let sale = open(&site, replicated(600, 12), 1).await;
    let reservations = |from: usize, within: Duration| {
        (from..from + 40)
            .map(|n| Reservation {
                within,
                ..sale.reservation(&buyer(n), "k", 1)
            })
            .collect::<Vec<_>>()
    };
    let long = timeout();
    assert_eq!(
        held(&all_answered(&[sale.at_first()], reservations(0, long)).await),
        40
    );

    let lagging = cluster.shard(0)[1];
    cluster.nodes()[lagging].lag().await.unwrap();
    let outcomes = at_once(&[sale.at_first()], reservations(40, Duration::from_secs(2))).await;
    let unknown = outcomes
        .iter()
        .filter(|outcome| is_unknown(outcome))
        .count();
    assert!(
        (1..40).contains(&unknown),
        "{unknown} of 40 are at home on the shard whose replica lags"
    );
    assert!(
        outcomes
            .iter()
            .all(|outcome| is_unknown(outcome) || outcome.as_ref().is_ok_and(is_held))
    );
    cluster.nodes()[lagging].catch_up().await.unwrap();
    assert_eq!(
        held(&all_answered(&[sale.at_first()], reservations(40, long)).await),
        40
    );

    let killed = Instant::now();
    let old = cluster.kill_master(0).await.unwrap();
    assert_eq!(cluster.until_writable(0).await.unwrap(), lagging);
    // Its only replica is the master now: no replica can confirm until the old one has come
    // back.
    cluster.nodes_mut()[old].restart().await.unwrap();
    let again = all_answered(
        &[sale.at_first()],
        reservations(0, long)
            .into_iter()
            .chain(reservations(40, long))
            .collect(),
    )
    .await;
    println!(
        "from the kill of a master to the last order of 80 confirmed: {:.2} s",
        killed.elapsed().as_secs_f64()
    );
    assert!(
        again
            .iter()
            .all(|outcome| matches!(outcome, Outcome::Held { replayed: true, .. })),
        "{again:?}"
    );
    let available = async || {
        sale.at_first()
            .inspect(stock::InspectionEntries::None)
            .await
            .map(|all| all.iter().map(|s| s.available).sum::<u64>())
    };
    eventually("every shard answering", async || available().await.is_ok()).await;
    assert_eq!(available().await.unwrap(), 520);
}
