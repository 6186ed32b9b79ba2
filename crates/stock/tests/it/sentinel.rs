//! A master that the sentinels replace while orders come in.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use stock::{ItemStock, StockError, Wakeup};
use testbed::{Redis, RedisSentinel, in_time};
use tokio::task::JoinSet;

use crate::{
    audit,
    crowd::{all_answered, held, instances},
    sale::{self, Sale, Terms, buyer, eventually, is_held},
    site::{self, Site, patient},
};

/// A sale at the master that the sentinels name, inspected from outside at the first master. Every
/// replica has its segments when this returns. Replication is asynchronous: under load a replica
/// could otherwise be promoted before it had them, and an order there would fail with `Missing`,
/// which only a repair ends.
async fn sale_at(group: &RedisSentinel, stock: u64) -> Arc<Sale> {
    let master = &group.servers()[group.master().await.unwrap()];
    let site = Site::at(group.url(), vec![master.url()]).await;
    let site = Arc::new(site.with_silent_servers());
    let sale = sale::open(&site, Terms::new(stock, 2)).await;
    let replicas = group.servers().len() - 1;
    master.is_followed_by(replicas).await.unwrap();
    sale
}

/// The same sale, inspected from outside on the present master, and audited there.
async fn audit_on_the_master(sale: &Sale, group: &RedisSentinel) -> u64 {
    let master = group.servers()[group.master().await.unwrap()].url();
    let site = Arc::new(Site::at(group.url(), vec![master]).await);
    let (item, stock) = (sale.item.clone(), Arc::clone(&sale.stock));
    let sale = Sale {
        site,
        item,
        stock,
        given_back: std::sync::Mutex::default(),
        trimmed: std::sync::Mutex::default(),
        lost: std::sync::Mutex::default(),
    };
    audit::audit(&sale).await;
    sale.available().await
}

/// Buyers who come one after the other until they are stopped, each with one order.
struct Stream {
    stop: Arc<AtomicBool>,
    next: Arc<AtomicUsize>,
    succeeded: Arc<AtomicUsize>,
    buyers: JoinSet<()>,
}

impl Stream {
    fn start(sale: &Arc<Sale>, instances: &[Arc<ItemStock>]) -> Self {
        let mut stream = Self {
            stop: Arc::default(),
            next: Arc::default(),
            succeeded: Arc::default(),
            buyers: JoinSet::new(),
        };
        for n in 0..16 {
            let (sale, item) = (
                Arc::clone(sale),
                Arc::clone(&instances[n % instances.len()]),
            );
            let (stop, next, succeeded) = (
                Arc::clone(&stream.stop),
                Arc::clone(&stream.next),
                Arc::clone(&stream.succeeded),
            );
            stream.buyers.spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let buyer = buyer(next.fetch_add(1, Ordering::SeqCst));
                    let reservation = sale.reservation(&buyer, "k", 1);
                    assert!(
                        is_held(&item.order(reservation).await.unwrap()),
                        "every order succeeds, if late"
                    );
                    succeeded.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            });
        }
        stream
    }

    fn succeeded(&self) -> usize {
        self.succeeded.load(Ordering::SeqCst)
    }

    /// Waits until `count` more orders have succeeded.
    async fn goes_on(&self, count: usize) {
        let before = self.succeeded();
        eventually("orders that succeed", async || {
            self.succeeded() >= before + count
        })
        .await;
    }

    /// How many orders there were.
    async fn stop(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        self.buyers.join_all().await;
        self.next.load(Ordering::SeqCst)
    }
}

/// Counts what the server answers to a client that asks every 50 ms, until the event. A busy
/// machine delays both.
async fn answers_until(server: &Redis, event: impl Future<Output = ()>) -> u32 {
    let mut answers = 0;
    let asking = async {
        for answer in 1.. {
            tell(server, &redis::cmd("PING")).await;
            answers = answer;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = event => {}
        () = asking => {}
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_keeps_ordering_through_a_failover() {
    let mut group = RedisSentinel::start(2).await.unwrap();
    let sale = sale_at(&group, 100_000).await;
    let instances = instances(&sale, 2).await;
    let stream = Stream::start(&sale, &instances);
    stream.goes_on(100).await;
    let killed = Instant::now();
    let old = group.kill_master().await.unwrap();
    group.successor_of(old).await.unwrap();
    let promoted = Instant::now();
    let successor = &group.servers()[group.master().await.unwrap()];
    let answers = answers_until(successor, stream.goes_on(1)).await;
    println!(
        "kill to promotion {:.2} s, promotion to first success {:.3} s",
        (promoted - killed).as_secs_f64(),
        promoted.elapsed().as_secs_f64()
    );
    assert!(
        answers <= 100,
        "{answers} answers of the new master before an order succeeded"
    );
    stream.goes_on(100).await;
    let orders = stream.stop().await;
    // What the failover lost, a repeat takes; what it did not lose, a repeat finds.
    let again = all_answered(
        &instances,
        (0..orders)
            .map(|n| sale.reservation(&buyer(n), "k", 1))
            .collect(),
    )
    .await;
    assert_eq!(held(&again), orders);
    assert_eq!(
        audit_on_the_master(&sale, &group).await,
        100_000 - orders as u64
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_master_that_resumes_is_not_used_any_more() {
    let group = RedisSentinel::start(1).await.unwrap();
    let sale = sale_at(&group, 1000).await;
    let mut wakeups = sale.stock.outbox_wakeups();
    assert_eq!(wakeups.recv().await.unwrap(), Wakeup::Subscribed);
    assert!(sale.sells(&buyer(0), "k", 1).await);
    // What the replica does not have would be lost with the master: another test covers that.
    group.servers()[0].is_followed_by(1).await.unwrap();
    group.servers()[0].pause().await.unwrap();
    assert_eq!(group.successor_of(0).await.unwrap(), 1);
    let reservation = |n| sale.reservation(&buyer(n), "k", 1);
    assert!(
        is_held(&sale.at_first().order(reservation(1)).await.unwrap()),
        "the first connection never broke, and is left all the same"
    );
    group.servers()[0].resume().await.unwrap();
    for n in 2..300 {
        assert!(is_held(
            &sale.at_first().order(reservation(n)).await.unwrap()
        ));
    }
    group.becomes_replica(0).await.unwrap();
    assert_eq!(
        audit_on_the_master(&sale, &group).await,
        700,
        "every order is where it survives"
    );
    // The subscription's connection never broke either.
    while wakeups.try_recv().is_ok() {}
    let mut publish = redis::cmd("PUBLISH");
    publish.arg("stockade:outbox").arg("vase:0");
    eventually("a wakeup from the new master", async || {
        tell(&group.servers()[1], &publish).await;
        let soon = tokio::time::timeout(Duration::from_millis(200), wakeups.recv());
        matches!(soon.await, Ok(Some(Wakeup::Entries(woken))) if woken.to_string() == "vase:0")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_is_noticed_by_polling_alone() {
    let group = RedisSentinel::start(1).await.unwrap();
    let sale = sale_at(&group, 100_000).await;
    let stream = Stream::start(&sale, &instances(&sale, 2).await);
    stream.goes_on(100).await;
    group.fail_over().await.unwrap();
    let promoted = Instant::now();
    stream.goes_on(1).await;
    println!(
        "promotion to first success {:.3} s",
        promoted.elapsed().as_secs_f64()
    );
    stream.goes_on(100).await;
    stream.stop().await;
    group.becomes_replica(0).await.unwrap();
    audit_on_the_master(&sale, &group).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_failover_after_another_is_followed() {
    let mut group = RedisSentinel::start(1).await.unwrap();
    let sale = sale_at(&group, 1000).await;
    for n in 0..3 {
        let old = group.kill_master().await.unwrap();
        group.successor_of(old).await.unwrap();
        let reservation = sale.reservation(&buyer(n), "k", 1);
        assert!(is_held(&sale.at_first().order(reservation).await.unwrap()));
        group.restart_as_replica(old).await.unwrap();
        group.servers()[group.master().await.unwrap()]
            .is_followed_by(1)
            .await
            .unwrap();
    }
    assert_eq!(audit_on_the_master(&sale, &group).await, 997);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_are_down_are_skipped() {
    let mut group = RedisSentinel::start(1).await.unwrap();
    for dead in 0..2 {
        group.sentinels_mut()[dead].kill().await.unwrap();
    }
    stock::Stock::connect(patient(group.url())).await.unwrap();
    group.sentinels_mut()[2].kill().await.unwrap();
    let connecting = stock::Stock::connect(patient(group.url()));
    let refused = in_time("an error", connecting).await;
    assert!(matches!(refused.err(), Some(StockError::Redis(_))));
}

#[tokio::test]
async fn a_name_that_no_sentinel_knows_is_an_error_that_says_so() {
    let group = RedisSentinel::start(0).await.unwrap();
    let url = group.url().replace("/stock", "/shop");
    let error = stock::Stock::connect(patient(url)).await.err().unwrap();
    assert!(
        error.to_string().contains("no sentinel names a master"),
        "{error}"
    );
}

#[tokio::test]
async fn credentials_are_for_the_servers_and_for_sentinels_that_want_them() {
    let group = RedisSentinel::start(1).await.unwrap();
    let url = group.url().replace("://", "://:secret@");
    let connects = async || stock::Stock::connect(patient(&url)).await.map(|_| ());
    let sentinels: Vec<_> = group
        .sentinels()
        .iter()
        .map(|sentinel| format!("redis://127.0.0.1:{}", sentinel.port()))
        .collect();
    for sentinel in &sentinels {
        let () = at(
            sentinel,
            redis::cmd("SENTINEL")
                .arg("SET")
                .arg("stock")
                .arg("auth-pass")
                .arg("secret"),
        )
        .await;
    }
    for server in group.servers() {
        let () = tell(
            server,
            redis::cmd("CONFIG")
                .arg("SET")
                .arg(&["masterauth", "secret", "requirepass", "secret"]),
        )
        .await;
    }
    connects().await.expect("sentinels without a password");
    for sentinel in &sentinels {
        let () = at(
            sentinel,
            redis::cmd("ACL")
                .arg("SETUSER")
                .arg("default")
                .arg("resetpass")
                .arg(">secret"),
        )
        .await;
    }
    connects().await.expect("sentinels with the same password");
    let without = stock::Stock::connect(patient(group.url())).await;
    assert!(matches!(without.err(), Some(StockError::Redis(_))));
}

async fn tell(server: &Redis, cmd: &redis::Cmd) {
    at(&server.url(), cmd).await;
}

async fn at(url: &str, cmd: &redis::Cmd) {
    cmd.exec_async(&mut site::raw(url).await).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_of_the_present_master_is_read() {
    let group = RedisSentinel::start(1).await.unwrap();
    let sale = sale_at(&group, 10).await;
    let reads_of = async |server: &Redis| {
        let memory = sale.stock.memory().await;
        memory.is_ok_and(|memory| {
            memory.len() == 1 && format!("redis://{}", memory[0].server) == server.url()
        })
    };
    assert!(reads_of(&group.servers()[0]).await);
    let promoted = group.fail_over().await.unwrap();
    eventually("the memory of the new master", async || {
        reads_of(&group.servers()[promoted]).await
    })
    .await;
}
