//! Servers that answer, and refuse every order: the check must say so, and cost nothing.

use std::{sync::Arc, time::Duration};

use stock::{Acknowledge, RedisSettings, Reservation, StockError, WriteCheck, check_writable};
use testbed::{Redis, RedisCluster, timeout};

use crate::{
    sale::{self, Sale, Terms, eventually},
    site::{self, Site, on_own_server, raw, tested},
};

/// A fault: what begins it, what ends it, and the word with which the server refuses.
struct Fault {
    word: &'static str,
    begin: &'static [&'static str],
    end: &'static [&'static str],
}

const FAULTS: [Fault; 4] = [
    Fault {
        word: "NOREPLICAS",
        begin: &["CONFIG", "SET", "min-replicas-to-write", "1"],
        end: &["CONFIG", "SET", "min-replicas-to-write", "0"],
    },
    Fault {
        word: "OOM",
        begin: &["CONFIG", "SET", "maxmemory", "1"],
        end: &["CONFIG", "SET", "maxmemory", "0"],
    },
    Fault {
        word: "NOPERM",
        begin: &["ACL", "SETUSER", "default", "-@scripting"],
        end: &["ACL", "SETUSER", "default", "+@all"],
    },
    // The replica of nobody: nothing listens at that port, so it keeps its data.
    Fault {
        word: "READONLY",
        begin: &["REPLICAOF", "127.0.0.1", "1"],
        end: &["REPLICAOF", "NO", "ONE"],
    },
];

async fn tell(url: &str, command: &[&str]) {
    let mut cmd = redis::cmd(command[0]);
    cmd.arg(&command[1..]);
    cmd.exec_async(&mut raw(url).await).await.unwrap();
}

async fn checks(sale: &Sale) -> Vec<WriteCheck> {
    sale.stock.check_writable(timeout()).await
}

fn refusals(checks: &[WriteCheck]) -> Vec<(&str, String)> {
    let refused = |check: &&WriteCheck| check.result.is_err();
    let refused = checks.iter().filter(refused);
    refused
        .map(|check| (&*check.server, check.refusal().unwrap()))
        .collect()
}

fn all_take_orders(checks: &[WriteCheck]) {
    let refused = refusals(checks);
    assert!(refused.is_empty(), "{refused:?}");
}

#[tested(on_own_server)]
async fn a_server_that_refuses_orders_is_named_with_its_reason_until_it_takes_them(
    site: Arc<Site>,
    server: &mut Redis,
) {
    let sale = sale::open(&site, Terms::new(100, 2)).await;
    let address = format!("127.0.0.1:{}", server.port());
    for (n, fault) in FAULTS.iter().enumerate() {
        let buyer = sale.buyer_at(0, n);
        tell(&site.url, fault.begin).await;
        let checks = checks(&sale).await;
        let refused = refusals(&checks);
        assert_eq!(refused.len(), 1, "{}: {checks:?}", fault.word);
        let (named, why) = &refused[0];
        assert_eq!(*named, address);
        assert!(why.starts_with(fault.word), "{}: {why}", fault.word);
        let reservation = Reservation {
            within: timeout(),
            acknowledge: Acknowledge::Accepted,
            ..sale.reservation(&buyer, "k", 1)
        };
        let ordered = sale.at_first().order(reservation).await;
        let refused = ordered.as_ref().is_err_and(StockError::proves_unchanged);
        assert!(refused, "{}: {ordered:?}", fault.word);
        // A preflight asks on connections of its own.
        let settings = RedisSettings::new(&site.url);
        let asked = check_writable(&settings).await.unwrap();
        let said = refusals(&asked);
        assert!(said[0].1.starts_with(fault.word), "{said:?}");

        tell(&site.url, fault.end).await;
        eventually("a server that takes orders", async || {
            self::checks(&sale).await[0].result.is_ok()
        })
        .await;
        assert!(sale.sells(&buyer, "k", 1).await);
    }
}

#[tested(on_own_server)]
async fn a_server_that_never_answers_refuses(site: Arc<Site>, server: &mut Redis) {
    let sale = sale::open(&site, Terms::new(1, 1)).await;
    server.pause().await.unwrap();
    let checks = sale.stock.check_writable(Duration::from_millis(200)).await;
    let refused = refusals(&checks);
    assert_eq!(refused.len(), 1, "{checks:?}");
    assert!(refused[0].1.contains("no answer within"), "{checks:?}");
    server.resume().await.unwrap();
    all_take_orders(&self::checks(&sale).await);
}

/// What the server has written since its start, for its file and for replicas.
async fn written(url: &str) -> Vec<String> {
    let info: String = redis::cmd("INFO")
        .query_async(&mut raw(url).await)
        .await
        .unwrap();
    let fields = [
        "rdb_changes_since_last_save:",
        "aof_current_size:",
        "master_repl_offset:",
        "db0:",
    ];
    let lines = info
        .lines()
        .filter(|line| fields.iter().any(|field| line.starts_with(field)));
    lines.map(str::to_owned).collect()
}

#[tested(on_own_server)]
async fn a_check_writes_nothing_and_sends_nothing_to_replicas(
    site: Arc<Site>,
    _server: &mut Redis,
) {
    let sale = sale::open(&site, Terms::new(1, 1)).await;
    let before = written(&site.url).await;
    assert!(before.len() >= 3, "{before:?}");
    for _ in 0..100 {
        all_take_orders(&checks(&sale).await);
    }
    let settings = sale.site.settings().redis;
    all_take_orders(&check_writable(&settings).await.unwrap());
    assert_eq!(written(&site.url).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_master_of_a_cluster_is_asked_and_the_one_that_refuses_is_named() {
    let cluster = RedisCluster::start(3).await.unwrap();
    let urls: Vec<_> = cluster.nodes().iter().map(Redis::url).collect();
    let site = Arc::new(Site::at(cluster.url(), urls.clone()).await);
    let sale = sale::open(&site, Terms::new(9, 1)).await;
    let asked = checks(&sale).await;
    assert_eq!((asked.len(), refusals(&asked)), (3, Vec::new()));
    for (node, url) in cluster.nodes().iter().zip(&urls) {
        let address = format!("127.0.0.1:{}", node.port());
        for fault in &FAULTS[..2] {
            tell(url, fault.begin).await;
            let settings = site.settings().redis;
            for asked in [
                checks(&sale).await,
                check_writable(&settings).await.unwrap(),
            ] {
                assert_eq!(asked.len(), 3);
                let refused = refusals(&asked);
                assert_eq!(refused.len(), 1, "{}: {asked:?}", fault.word);
                assert_eq!(refused[0].0, address);
                assert!(refused[0].1.starts_with(fault.word), "{refused:?}");
            }
            tell(url, fault.end).await;
        }
        all_take_orders(&checks(&sale).await);
    }
    site::close(&site).await;
}
