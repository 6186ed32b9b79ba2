//! Answers of a server that prove that an order has not run, provoked one by one. The order hears so
//! soon, the segments have not changed, and the same order succeeds when the server is right again.
//!
//! `reconnecting.rs` has the refused login. A master without data, or a cluster without a master,
//! is not brought about by a setting; a replica answers scripts with READONLY before MASTERDOWN.

use std::{sync::Arc, time::Instant};

use redis::cmd;
use stock::{Reservation, StockError};
use testbed::{Redis, RedisUser, timeout};

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
        let mut raw = site::raw(&self.server.url()).await;
        cmd.exec_async(&mut raw).await.unwrap();
    }

    async fn order(&self) -> Result<stock::Outcome, StockError> {
        let reservation = Reservation {
            within: timeout(),
            ..self.sale.reservation(&buyer(1), "k", 1)
        };
        self.sale.at_first().order(reservation).await
    }

    /// An order while the server refuses.
    async fn refuses(&self, with: &str) {
        let begun = Instant::now();
        let error = self.order().await.unwrap_err();
        // clock: a refusal ends the order after a second, and without that its time limit does
        assert!(
            begun.elapsed() < timeout() * 3 / 4,
            "it waited for its time limit"
        );
        assert!(error.proves_unchanged(), "{error}");
        assert!(error.to_string().contains(with), "expected {with}: {error}");
    }
}

/// Provokes a refusal, and ends it. The audit of the sale follows.
async fn refused(provoke: impl AsyncFnOnce(&Refusing)) {
    let server = Redis::builder().user(&SHOP).start().await.unwrap();
    let site = Arc::new(Site::at(SHOP.at(&server.url()), vec![server.url()]).await);
    let sale = sale::open(&site, Terms::new(4, 2)).await;
    let first = sale.order(&buyer(0), "k", 1).await.unwrap();
    assert!(is_held(&first));
    let before = sale.dumps().await;
    let refusing = Refusing {
        server,
        sale: Arc::clone(&sale),
    };
    provoke(&refusing).await;
    assert_eq!(sale.dumps().await, before, "nothing ran");
    eventually("an order after the refusal", async || {
        refusing
            .order()
            .await
            .is_ok_and(|outcome| is_held(&outcome))
    })
    .await;
    site::close(&site).await;
}

macro_rules! refusals {
    ($($name:ident = $provoke:expr);+ $(;)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            refused($provoke).await;
        })+
    };
}

refusals! {
    out_of_memory = async |at: &Refusing| {
        at.config("maxmemory", "1").await;
        at.refuses("OOM").await;
        at.config("maxmemory", "0").await;
    };
    too_few_replicas = async |at: &Refusing| {
        at.config("min-replicas-to-write", "1").await;
        at.refuses("NOREPLICAS").await;
        at.config("min-replicas-to-write", "0").await;
    };
    a_replica = async |at: &Refusing| {
        let master = Redis::start().await.unwrap();
        // It would take the data of its master: there is none.
        let nobody = master.port().to_string();
        master.stop().await.unwrap();
        at.run(cmd("REPLICAOF").arg("127.0.0.1").arg(nobody)).await;
        at.refuses("ReadOnly").await;
        at.run(cmd("REPLICAOF").arg("NO").arg("ONE")).await;
    };
    a_user_without_rights = async |at: &Refusing| {
        at.run(cmd("ACL").arg("SETUSER").arg(SHOP.name).arg("-evalsha").arg("-eval")).await;
        at.refuses("NoPerm").await;
        at.server.create_user(&SHOP).await.unwrap();
    };
    a_user_without_a_right_to_the_keys = async |at: &Refusing| {
        at.run(cmd("ACL").arg("SETUSER").arg(SHOP.name).arg("resetkeys").arg("~other")).await;
        at.refuses("NoPerm").await;
        at.server.create_user(&SHOP).await.unwrap();
    };
    a_file_that_cannot_be_written = async |at: &Refusing| {
        // A save fails in a folder that is gone, and the server refuses writes until one succeeds.
        at.config("save", "3600 1").await;
        let (folder, aside) = (at.server.dir().to_owned(), at.server.dir().with_extension("aside"));
        std::fs::create_dir(&aside).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        at.run(&cmd("BGSAVE")).await;
        eventually("a save that fails", async || {
            let mut raw = site::raw(&at.server.url()).await;
            let info: String = cmd("INFO").arg("persistence").query_async(&mut raw).await.unwrap();
            info.contains("rdb_last_bgsave_status:err")
        })
        .await;
        at.refuses("MISCONF").await;
        at.config("save", "").await;
        std::fs::rename(&aside, &folder).unwrap();
    };
    a_script_that_runs_for_too_long = async |at: &Refusing| {
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
    };
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
    let reservation = Reservation {
        within: std::time::Duration::from_millis(1500),
        ..sale.reservation(&buyer(1), "k", 1)
    };
    let error = sale.at_first().order(reservation).await.unwrap_err();
    assert!(!error.proves_unchanged(), "{error}");
}
