//! Answers of a server that prove that an order has not run, provoked one by one. The order hears
//! so soon, the segments have not changed, and the same order succeeds when the server is right
//! again.
//!
//! An order that found no connection was never sent, and ends the same. `reconnecting.rs` has the
//! refused login that heals.

use std::{sync::Arc, time::Duration};

use redis::{RedisResult, Value, aio::MultiplexedConnection, cmd};
use stock::{Reservation, StockError};
use testbed::{Proxy, Redis, RedisCluster, RedisUser, Traffic, in_time, timeout};
use tokio::time::sleep;

use crate::{
    sale::{self, Sale, Terms, buyer, eventually, is_held},
    site::{self, Site},
};

const SHOP: RedisUser = RedisUser {
    name: "shop",
    password: "secret",
};

/// Where the server can be asked only as an operator.
struct Refusing {
    server: Redis,
    sale: Arc<Sale>,
}

impl Refusing {
    async fn config(&self, setting: &str, value: &str) {
        self.run(cmd("CONFIG").arg("SET").arg(setting).arg(value))
            .await;
    }

    async fn run(&self, cmd: &redis::Cmd) {
        run_at(&self.server.url(), cmd).await;
    }

    /// An order while the server refuses.
    async fn refuses(&self, with: &str) {
        let error = refusal(&self.sale).await;
        assert!(error.to_string().contains(with), "expected {with}: {error}");
    }
}

async fn run_at(url: &str, cmd: &redis::Cmd) {
    cmd.exec_async(&mut site::raw(url).await).await.unwrap();
}

async fn order(sale: &Sale) -> Result<stock::Outcome, StockError> {
    order_within(sale, timeout()).await
}

async fn order_within(sale: &Sale, within: Duration) -> Result<stock::Outcome, StockError> {
    let reservation = Reservation {
        within,
        ..sale.reservation(&buyer(1), "k", 1)
    };
    sale.at_first().order(reservation).await
}

/// The error of an order that the server refuses.
async fn refusal(sale: &Sale) -> StockError {
    // A refusal ends the order after a second. One that waits for its time limit comes too late.
    let refused = order_within(sale, timeout() * 2);
    let error = in_time("a refusal", refused).await.unwrap_err();
    assert!(error.proves_unchanged(), "{error}");
    error
}

async fn eventually_held(sale: &Sale) {
    eventually("an order after the refusal", async || {
        order(sale).await.is_ok_and(|outcome| is_held(&outcome))
    })
    .await;
}

/// Provokes a refusal, and ends it. The audit of the sale follows.
async fn refused(provoke: impl AsyncFnOnce(&mut Refusing)) {
    let server = Redis::builder().user(&SHOP).start().await.unwrap();
    let url = SHOP.at(&server.url());
    refused_at(server, url, provoke).await;
}

/// [`refused`] without a login.
async fn refused_without_login(provoke: impl AsyncFnOnce(&mut Refusing)) {
    let server = Redis::start().await.unwrap();
    let url = server.url();
    refused_at(server, url, provoke).await;
}

async fn refused_at(server: Redis, url: String, provoke: impl AsyncFnOnce(&mut Refusing)) {
    let site = Arc::new(Site::at(url, vec![server.url()]).await);
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let first = sale.order(&buyer(0), "k", 1).await;
    assert!(is_held(&first));
    let before = sale.dumps().await;
    let mut refusing = Refusing {
        server,
        sale: Arc::clone(&sale),
    };
    provoke(&mut refusing).await;
    assert_eq!(sale.dumps().await, before, "nothing ran");
    eventually_held(&sale).await;
    site::close(&site).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory() {
    refused(async |at| {
        at.config("maxmemory", "1").await;
        at.refuses("OOM").await;
        at.config("maxmemory", "0").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_replicas() {
    refused(async |at| {
        at.config("min-replicas-to-write", "1").await;
        at.refuses("NOREPLICAS").await;
        at.config("min-replicas-to-write", "0").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica() {
    refused(async |at| {
        follow_a_missing_master(at).await;
        at.refuses("ReadOnly").await;
        at.run(cmd("REPLICAOF").arg("NO").arg("ONE")).await;
    })
    .await;
}

/// Another replica answers with READONLY first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writable_replica_without_its_master() {
    refused(async |at| {
        at.config("replica-read-only", "no").await;
        at.config("replica-serve-stale-data", "no").await;
        follow_a_missing_master(at).await;
        at.refuses("MasterDown").await;
        at.run(cmd("REPLICAOF").arg("NO").arg("ONE")).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_reads_its_file() {
    refused(async |at| {
        // The delay is one of each key, and is ended below.
        for part in 0..60 {
            let mut fill = cmd("EVAL");
            let script = "for i = 1, 1000 do redis.call('SET', KEYS[1] .. i, '') end";
            at.run(fill.arg(script).arg(1).arg(format!("{part}:")))
                .await;
        }
        at.config("key-load-delay", "1000").await;
        at.run(cmd("CONFIG").arg("REWRITE")).await;
        let (sale, url) = (&at.sale, at.server.url());
        at.server.kill().await.unwrap();
        let meets_loading = async {
            // An order that the end of the connection surprises is undecided until its time limit.
            eventually("a server that reads its file", async || {
                let error = order_within(sale, Duration::from_secs(5))
                    .await
                    .unwrap_err();
                error.proves_unchanged() && error.to_string().contains("BusyLoading")
            })
            .await;
            run_at(&url, cmd("CONFIG").arg("SET").arg("key-load-delay").arg(0)).await;
        };
        let (restarted, ()) = tokio::join!(at.server.restart(), meets_loading);
        restarted.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_rights() {
    refused(async |at| {
        at.run(
            cmd("ACL")
                .arg("SETUSER")
                .arg(SHOP.name)
                .arg("-evalsha")
                .arg("-eval"),
        )
        .await;
        at.refuses("NoPerm").await;
        at.server.create_user(&SHOP).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_a_right_to_the_keys() {
    refused(async |at| {
        at.run(
            cmd("ACL")
                .arg("SETUSER")
                .arg(SHOP.name)
                .arg("resetkeys")
                .arg("~other"),
        )
        .await;
        at.refuses("NoPerm").await;
        at.server.create_user(&SHOP).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_written() {
    refused(async |at| {
        // A save fails in a folder that is gone, and the server refuses writes until one succeeds.
        at.config("save", "3600 1").await;
        let (folder, aside) = (
            at.server.dir().to_owned(),
            at.server.dir().with_extension("aside"),
        );
        std::fs::create_dir(&aside).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        at.run(&cmd("BGSAVE")).await;
        eventually("a save that fails", async || {
            let mut raw = site::raw(&at.server.url()).await;
            let info: String = cmd("INFO")
                .arg("persistence")
                .query_async(&mut raw)
                .await
                .unwrap();
            info.contains("rdb_last_bgsave_status:err")
        })
        .await;
        at.refuses("MISCONF").await;
        at.config("save", "").await;
        std::fs::rename(&aside, &folder).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_runs_for_too_long() {
    refused(async |at| {
        at.config("busy-reply-threshold", "50").await;
        let mut raw = site::raw(&at.server.url()).await;
        let endless = tokio::spawn(async move {
            let mut endless = cmd("EVAL");
            endless.arg("while true do end").arg(0);
            endless.exec_async(&mut raw).await
        });
        eventually("a server that is busy", async || {
            let mut raw = site::raw(&at.server.url()).await;
            let pong = cmd("PING").exec_async(&mut raw).await;
            pong.is_err_and(|error| error.code() == Some("BUSY"))
        })
        .await;
        at.refuses("BUSY").await;
        at.run(cmd("SCRIPT").arg("KILL")).await;
        assert!(endless.await.unwrap().is_err(), "it was killed");
    })
    .await;
}

/// The server would take the data of its master: there is none.
async fn follow_a_missing_master(at: &Refusing) {
    let master = Redis::start().await.unwrap();
    let port = master.port();
    master.stop().await.unwrap();
    at.run(cmd("REPLICAOF").arg("127.0.0.1").arg(port)).await;
}

/// How long a connection must have been idle to be examined before use, and more.
const IDLE: Duration = Duration::from_millis(500);

/// Waits until an order is not sent. The end of a connection is noticed a moment after it, and an
/// order that is faster may have been sent.
async fn notices_the_end(sale: &Sale) {
    eventually("an order that was not sent", async || {
        // Longer than an order that is refused is tried.
        let order = order_within(sale, Duration::from_secs(2)).await;
        order.is_err_and(|error| error.proves_unchanged())
    })
    .await;
}

/// Uses up `maxclients`, and cuts every connection but this one, which must exist before.
async fn reach_maxclients(operator: &mut MultiplexedConnection) {
    let mut set = cmd("CONFIG");
    set.arg("SET").arg("maxclients").arg(1);
    set.exec_async(operator).await.unwrap();
    for kind in ["normal", "pubsub"] {
        let mut kill = cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg(kind);
        kill.exec_async(operator).await.unwrap();
    }
}

/// Redis accepts each connection and closes it. What the client reads depends on which is faster.
async fn meets_maxclients(at: &mut Refusing) {
    let mut operator = site::raw(&at.server.url()).await;
    reach_maxclients(&mut operator).await;
    notices_the_end(&at.sale).await;
    for _ in 0..3 {
        let error = refusal(&at.sale).await;
        assert!(error.is_refusal(), "{error}");
    }
    let mut set = cmd("CONFIG");
    set.arg("SET").arg("maxclients").arg(10_000);
    set.exec_async(&mut operator).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_at_its_maxclients() {
    refused_without_login(meets_maxclients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_at_its_maxclients_that_asks_for_a_password() {
    refused(meets_maxclients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_asks_for_a_password_now() {
    refused_without_login(async |at| {
        let mut operator = site::raw(&at.server.url()).await;
        let mut set = cmd("CONFIG");
        set.arg("SET").arg("requirepass").arg("secret");
        set.exec_async(&mut operator).await.unwrap();
        let mut kill = cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("normal");
        kill.exec_async(&mut operator).await.unwrap();
        notices_the_end(&at.sale).await;
        at.refuses("NOAUTH").await;
        let mut set = cmd("CONFIG");
        set.arg("SET").arg("requirepass").arg("");
        set.exec_async(&mut operator).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_wrong_now() {
    refused(async |at| {
        at.server.change_password(&SHOP, "other").await.unwrap();
        notices_the_end(&at.sale).await;
        at.refuses("AuthenticationFailed").await;
        at.server.create_user(&SHOP).await.unwrap();
    })
    .await;
}

/// It may be back in a moment, so the order waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_to_a_server_that_is_gone_was_never_sent() {
    refused_without_login(async |at| {
        at.server.kill().await.unwrap();
        notices_the_end(&at.sale).await;
        // The default limit.
        let error = order_within(&at.sale, Duration::from_secs(5)).await;
        let error = error.unwrap_err();
        assert!(error.proves_unchanged() && !error.is_refusal(), "{error}");
        at.server.restart().await.unwrap();
    })
    .await;
}

/// An address whose traffic a test controls, before a server without a login.
async fn behind_a_proxy() -> (Redis, Proxy, Arc<Site>) {
    let server = Redis::start().await.unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let site = Site::at(url, vec![server.url()]).await;
    (server, proxy, Arc::new(site))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_closes_each_connection() {
    let (_server, proxy, site) = behind_a_proxy().await;
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let before = sale.dumps().await;
    proxy.set(Traffic::Reset);
    // The first order examines its connection.
    sleep(IDLE).await;
    assert!(refusal(&sale).await.is_refusal());
    assert_eq!(sale.dumps().await, before, "nothing ran");
    proxy.set(Traffic::Pass);
    eventually_held(&sale).await;
    site::close(&site).await;
}

/// The script has run and its reply is lost. That every later attempt finds no connection proves
/// nothing of the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_was_sent_before_its_connection_broke_proves_nothing() {
    let (_server, proxy, site) = behind_a_proxy().await;
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    // The server knows the script from now on.
    assert!(sale.sells(&buyer(0), "k", 1).await);
    let before = sale.dumps().await;
    proxy.set(Traffic::HoldAnswers);
    let lost = async {
        eventually("the script has run", async || sale.dumps().await != before).await;
        proxy.set(Traffic::Reset);
    };
    let (outcome, ()) = tokio::join!(order_within(&sale, Duration::from_secs(5)), lost);
    let error = outcome.unwrap_err();
    assert!(!error.proves_unchanged(), "{error}");
    proxy.set(Traffic::Pass);
    eventually_held(&sale).await;
    site::close(&site).await;
}

/// A script as ours are, which writes its first key.
const WRITES: &str = "#!lua\nreturn redis.call('SET', KEYS[1], 'written')";

/// What the server at this URL replies to a script that writes the first of these keys.
async fn reply_to_script(url: &str, keys: &[&str]) -> RedisResult<Value> {
    let mut script = cmd("EVAL");
    script.arg(WRITES).arg(keys.len()).arg(keys);
    script.query_async(&mut site::raw(url).await).await
}

/// Not our client, which follows these answers: the answer itself.
async fn proves_that_the_script_did_not_run(url: &str, keys: &[&str], code: &str) {
    let error = reply_to_script(url, keys).await.unwrap_err();
    assert_eq!(error.code(), Some(code), "{error}");
    assert!(StockError::from(error).proves_unchanged(), "{code}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_wrong_node_of_a_cluster_answers_proves_that_nothing_ran() {
    let mut cluster = RedisCluster::start(3).await.unwrap();
    let (present, missing) = ("{tea}present", "{tea}missing");
    let slot = cluster.slot_of(present.as_bytes()).await.unwrap();
    let owner = cluster.owner_of(slot).await.unwrap();
    let other = (owner + 1) % 3;
    let (home, away) = (cluster.nodes()[owner].url(), cluster.nodes()[other].url());
    let mut set = cmd("SET");
    run_at(&home, set.arg(present).arg("before")).await;

    let refuses = proves_that_the_script_did_not_run;
    refuses(&away, &[missing], "MOVED").await;
    refuses(&home, &[present, "{coffee}"], "CROSSSLOT").await;
    let migration = cluster.begin_migration(slot, other).await.unwrap();
    refuses(&home, &[missing], "ASK").await;
    refuses(&home, &[missing, present], "TRYAGAIN").await;
    cluster.end_migration(migration).await.unwrap();

    for (key, expected) in [(present, Some("before")), (missing, None)] {
        let mut get = cmd("GET");
        let mut raw = site::raw(&away).await;
        let found: Option<String> = get.arg(key).query_async(&mut raw).await.unwrap();
        assert_eq!(found.as_deref(), expected, "{key}");
    }
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_is_missing_or_wrong_proves_that_nothing_ran() {
    let server = Redis::start().await.unwrap();
    let mut early = site::raw(&server.url()).await;
    let mut set = cmd("CONFIG");
    run_at(
        &server.url(),
        set.arg("SET").arg("requirepass").arg("secret"),
    )
    .await;
    let error = reply_to_script(&server.url(), &["key"]).await.unwrap_err();
    assert_eq!(error.code(), Some("NOAUTH"), "{error}");
    assert!(StockError::from(error).proves_unchanged());

    let mut login = cmd("AUTH");
    let error = login.arg("wrong").exec_async(&mut early).await.unwrap_err();
    assert_eq!(error.code(), Some("WRONGPASS"), "{error}");
    assert!(StockError::from(error).proves_unchanged());

    let mut exists = cmd("EXISTS");
    let found: i64 = exists.arg("key").query_async(&mut early).await.unwrap();
    assert_eq!(found, 0);
}

/// Each master gives up its slots, and takes them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_slots_have_no_master() {
    let cluster = RedisCluster::start(3).await.unwrap();
    let masters = cluster.nodes().iter().map(Redis::url).collect();
    let site = Site::at(cluster.url(), masters).await;
    site::run(site, async |site| {
        let sale = sale::open(&site, Terms::new(4, 2)).await;
        assert!(sale.sells(&buyer(0), "k", 1).await);
        let own_slots = async |command: &str| {
            for (index, master) in site.masters.iter().enumerate() {
                let (first, end) = (16_384 * index / 3, 16_384 * (index + 1) / 3);
                let mut slots = cmd("CLUSTER");
                run_at(master, slots.arg(command).arg(first).arg(end - 1)).await;
            }
        };
        own_slots("DELSLOTSRANGE").await;
        let error = refusal(&sale).await;
        assert!(error.to_string().contains("ClusterDown"), "{error}");
        own_slots("ADDSLOTSRANGE").await;
        eventually_held(&sale).await;
    })
    .await;
}

/// Not a refusal: the script has begun. The order is undecided until its time limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_is_refused_within_the_script_proves_nothing() {
    let server = Redis::builder().user(&SHOP).start().await.unwrap();
    let site = Arc::new(Site::at(SHOP.at(&server.url()), vec![server.url()]).await);
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let mut raw = site::raw(&server.url()).await;
    let mut forbid = cmd("ACL");
    forbid.arg("SETUSER").arg(SHOP.name).arg("-time");
    forbid.exec_async(&mut raw).await.unwrap();
    let within = Duration::from_millis(1500);
    let error = order_within(&sale, within).await.unwrap_err();
    assert!(!error.proves_unchanged(), "{error}");
}
