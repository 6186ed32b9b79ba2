//! A sale on servers that are backed up and restored by the commands of `docs/operations.md`.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use order::PaymentKey;
use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use testbed::{Postgres, Redis};
use testkit::eventually;

use super::stock::StockServers;
use crate::{
    process::{
        Serving, audit, audit_becomes, create, known, order, polling_client, program, run, stderr,
        stdout, stockade, token,
    },
    test_env::run_redis,
};

const PAGE: &str = include_str!("../../../../../docs/operations.md");
pub const STOCK: u64 = 40;
const PRICE_CENTS: u64 = 500;

/// The block of the page that begins with this line.
pub fn documented(first_line: &str) -> &'static str {
    let from = PAGE
        .find(&format!("```sh\n{first_line}\n"))
        .unwrap_or_else(|| panic!("the page has no block {first_line:?}"));
    let block = &PAGE[from + "```sh\n".len()..];
    block.split_once("\n```").unwrap().0
}

/// An order that a service has acknowledged.
#[derive(Debug, Clone)]
pub struct Placed {
    pub buyer: String,
    pub id: String,
}

/// Redis, PostgreSQL with an archive of its log, and a folder whose settings name them.
pub struct Drill {
    folder: tempfile::TempDir,
    pub stock: StockServers,
    pub postgres: Postgres,
    pub ledger: String,
    pub admin: String,
    processes: Vec<Serving>,
    pub url: String,
}

impl Drill {
    /// Starts the servers and the roles, and sells `vase` in two segments.
    pub async fn start() -> Self {
        Self::on(StockServers::one().await).await
    }

    /// The same with the stock on these servers.
    pub async fn on(stock: StockServers) -> Self {
        let postgres = Postgres::builder()
            .config("archive_mode", "on")
            .config(
                "archive_command",
                "test ! -f ../backup/wal/%f && cp %p ../backup/wal/%f",
            )
            .start()
            .await
            .unwrap();
        let ledger = postgres.create_database("drill").await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let settings = format!(
            "redis_url = \"{}\"\ndatabase_url = \"{ledger}\"\njwt_secret = \"a secret of the login\"\nadmin_token = \"a token of the admins\"\n\
             payment_secret = \"a secret of payments\"\norder_timeout_ms = 1500\n",
            stock.url()
        );
        fs::write(folder.path().join("stockade.toml"), settings).unwrap();
        let admin = token(folder.path(), &["admin"]);
        let mut drill = Self {
            folder,
            stock,
            postgres,
            ledger,
            admin,
            processes: Vec::new(),
            url: String::new(),
        };
        drill.serve("order,recorder").await;
        drill
    }

    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a process with these roles. The first one with a port is asked from now on.
    pub async fn serve(&mut self, roles: &str) {
        let port = testbed::free_port().await;
        let serving = Serving::serve(self.dir(), port, &["--roles", roles]).await;
        if roles.contains("order") {
            self.url.clone_from(&serving.url);
        }
        self.processes.push(serving);
    }

    /// Kills every process of Stockade.
    pub fn stop_all(&mut self) {
        self.processes.clear();
    }

    /// Runs a block of the page, as the user of PostgreSQL or as our own, and returns what it
    /// prints.
    pub fn run(&self, first_line: &str, variables: &[(&str, &str)]) -> String {
        self.shell(documented(first_line), false, variables)
    }

    pub fn run_as_postgres(&self, first_line: &str, variables: &[(&str, &str)]) -> String {
        self.shell(documented(first_line), true, variables)
    }

    fn shell(&self, script: &str, as_postgres: bool, variables: &[(&str, &str)]) -> String {
        let is_root = nix::unistd::geteuid().is_root();
        let mut command = if as_postgres && is_root {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--", "bash"]);
            command
        } else {
            Command::new("bash")
        };
        command.args(["-euo", "pipefail", "-c", script]);
        command
            .current_dir(self.postgres.dir())
            .env("PATH", path())
            .env("LEDGER", &self.ledger)
            .env("DATABASE_URL", &self.ledger)
            .env("REDIS_URL", self.stock.masters()[0].url())
            .env("BACKUP", self.backup())
            .env("PGDATA", self.postgres.dir().join("data"))
            .env("REDIS_DIR", self.stock.masters()[0].dir())
            .envs(variables.iter().copied());
        let output = command.output().unwrap();
        let printed = stdout(&output);
        // A block goes on after a command that fails for one item. A test that fails shows why.
        eprint!("{}", stderr(&output));
        assert!(output.status.success(), "{script}\n{printed}");
        printed
    }

    fn backup(&self) -> PathBuf {
        self.postgres.dir().join("backup")
    }

    pub fn back_up_ledger(&self) {
        self.run_as_postgres(
            "# Back up the ledger: regularly, and before each sale.",
            &[],
        );
        // Redis's backup is written by another user.
        fs::set_permissions(self.backup(), fs::Permissions::from_mode(0o777)).unwrap();
    }

    pub fn back_up_redis(&self) {
        self.at_each_master("# Back up a Redis master: each of a cluster.");
    }

    /// Runs a block of the page for each master, with a backup folder of its own.
    fn at_each_master(&self, first_line: &str) {
        for (shard, master) in self.stock.masters().iter().enumerate() {
            let backup = self.backup().join(format!("shard-{shard}"));
            fs::create_dir_all(&backup).unwrap();
            let variables = [
                ("REDIS_URL", master.url()),
                ("REDIS_DIR", master.dir().display().to_string()),
                ("BACKUP", backup.display().to_string()),
            ];
            let variables = variables.each_ref().map(|(name, value)| (*name, &**value));
            self.run(first_line, &variables);
        }
    }

    /// A moment that the ledger can be restored to: what was recorded so far was committed before
    /// it.
    pub async fn moment(&self) -> String {
        let moment = self.ask("SELECT clock_timestamp()::text").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        moment
    }

    pub async fn restore_ledger(&mut self, moment: &str) {
        self.archived_log().await;
        self.postgres.kill().await.unwrap();
        self.run_as_postgres("# Restore the ledger.", &[("MOMENT", moment)]);
        self.postgres.restart().await.unwrap();
        eventually("the recovery ending", async || {
            self.ask("SELECT pg_is_in_recovery()::text").await == "false"
        })
        .await;
    }

    /// Waits until the log up to now is in the archive.
    async fn archived_log(&self) {
        let last = self.ask("SELECT pg_walfile_name(pg_switch_wal())").await;
        let archived = self.backup().join("wal").join(last);
        eventually("the log being archived", async || archived.exists()).await;
    }

    pub async fn restore_redis(&mut self) {
        self.stock.kill().await;
        self.at_each_master("# Restore a Redis master.");
        self.stock.restart().await;
    }

    pub fn rebuild(&self) -> String {
        let url = self.stock.url();
        self.run("# Rebuild Redis from the ledger.", &[("REDIS_URL", &url)])
    }

    /// Runs `stockade`, which must succeed.
    pub fn stockade(&self, arguments: &[&str]) {
        let output = run(stockade(self.dir()).args(arguments));
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    pub async fn close(&self, item: &str) {
        let url = self.url.clone();
        self.stockade(&["items", "close", item, "--url", &url]);
        self.is_clean(item).await;
    }

    /// What the page says of an item that was archived after the moment.
    pub async fn delete_tombstones(&self, item: &str) {
        for segment in 0..2 {
            let key = format!("stock:{{{item}:{segment}}}");
            run_redis(&self.stock.url(), &["DEL", &key]).await;
        }
    }

    /// The one value of a query to the ledger.
    pub async fn ask(&self, query: &'static str) -> String {
        let mut ledger = PgConnection::connect(&self.ledger).await.unwrap();
        sqlx::query_scalar(query)
            .fetch_one(&mut ledger)
            .await
            .unwrap()
    }

    /// The ids of all orders of `vase` in the ledger, in these states.
    pub async fn recorded(&self, states: &[&str]) -> BTreeSet<String> {
        let mut ledger = PgConnection::connect(&self.ledger).await.unwrap();
        let ids: Vec<String> = sqlx::query_scalar(
            "SELECT id::text FROM orders WHERE item = 'vase' AND state = ANY($1)",
        )
        .bind(
            states
                .iter()
                .map(|state| (*state).to_owned())
                .collect::<Vec<_>>(),
        )
        .fetch_all(&mut ledger)
        .await
        .unwrap();
        ids.into_iter().collect()
    }

    pub async fn create(&self, item: &str) {
        let item = json!({ "id": item, "stock": STOCK, "segments": 2, "limit_per_buyer": 1, "hold_seconds": 600,
                           "price": PRICE_CENTS, "currency": "EUR" });
        create(&self.url, &self.admin, &item).await;
    }

    fn order(&self, item: &str, buyer: &str) -> RequestBuilder {
        let token = token(self.dir(), &["buyer", buyer]);
        order(&polling_client(), &self.url, item, &token, "key")
    }

    pub async fn place(&self, item: &str, buyer: &str) -> Response {
        self.order(item, buyer).send().await.unwrap()
    }

    /// Repeats an order until its outcome is known.
    pub async fn place_until_known(&self, item: &str, buyer: &str) -> Response {
        known(|| self.order(item, buyer)).await
    }

    /// Places an order that may be answered before the ledger has it.
    pub async fn place_async(&self, item: &str, buyer: &str) -> Response {
        let order = self.order(item, buyer);
        order
            .header("Prefer", "respond-async")
            .send()
            .await
            .unwrap()
    }

    /// Places an order, which must be held.
    pub async fn hold(&self, item: &str, buyer: &str) -> Placed {
        let response = self.place_until_known(item, buyer).await;
        assert_eq!(response.status(), StatusCode::CREATED, "{buyer}");
        let held: Value = response.json().await.unwrap();
        Placed {
            buyer: buyer.to_owned(),
            id: held["id"].as_str().unwrap().to_owned(),
        }
    }

    /// Orders of these buyers, one after the other: each is a batch, and so an entry, of its own.
    pub async fn hold_all(&self, buyers: impl Iterator<Item = u32>) -> Vec<Placed> {
        let mut placed = Vec::new();
        for buyer in buyers {
            placed.push(self.hold("vase", &format!("buyer-{buyer}")).await);
        }
        placed
    }

    /// Reports the order's payment, and returns the status.
    pub async fn pay(&self, placed: &Placed) -> StatusCode {
        let order = &placed.id;
        let body =
            json!({ "payment": format!("pay-{order}"), "order": order, "amount": PRICE_CENTS })
                .to_string();
        let key = PaymentKey::new(b"a secret of payments", Duration::from_secs(300));
        let request = polling_client()
            .post(format!("{}/v1/orders/{order}/payment", self.url))
            .header("Stockade-Signature", key.sign(body.as_bytes()));
        request.body(body).send().await.unwrap().status()
    }

    /// Waits until the outbox of each segment is trimmed down to the entry recorded last.
    pub async fn outboxes_are_trimmed(&self) {
        let urls: Vec<_> = self.stock.masters().iter().map(Redis::url).collect();
        outboxes_are_trimmed(&urls).await;
    }

    /// The last of these orders at each segment, by the ledger.
    pub async fn last_of_each_segment(&self, placed: &[Placed]) -> BTreeSet<String> {
        let mut ledger = PgConnection::connect(&self.ledger).await.unwrap();
        let mut last = std::collections::BTreeMap::new();
        for Placed { id, .. } in placed {
            let segment: i32 =
                sqlx::query_scalar("SELECT segment::int FROM orders WHERE id = $1::uuid")
                    .bind(id)
                    .fetch_one(&mut ledger)
                    .await
                    .unwrap();
            last.insert(segment, id.clone());
        }
        assert_eq!(last.len(), 2, "both segments have sold");
        last.into_values().collect()
    }

    /// Sells the rest to new buyers. Then every unit has one order, and the audit is clean.
    pub async fn sells_on_to_the_last_unit(&self) {
        let mut sold_out = false;
        for buyer in 0..=STOCK {
            let buyer = format!("later-{buyer}");
            let response = self.place_until_known("vase", &buyer).await;
            if response.status() == StatusCode::CONFLICT {
                let problem: Value = response.json().await.unwrap();
                assert_eq!(problem["code"], "sold_out", "{problem:#}");
                sold_out = true;
                break;
            }
            assert_eq!(response.status(), StatusCode::CREATED);
        }
        assert!(sold_out, "more were sold than there are");
        let orders = self.recorded(&["held", "confirmed"]).await;
        assert_eq!(orders.len() as u64, STOCK, "every unit is sold once");
        self.is_clean("vase").await;
    }

    /// Waits until the audit finds nothing. A service must run.
    pub async fn is_clean(&self, item: &str) -> Value {
        let is_clean = |report: &Value| report["ok"] == json!(true) && report["in_flight"] == 0;
        audit_becomes(&self.url, &self.admin, item, is_clean).await;
        let mut report = Value::Null;
        eventually("a clean audit", async || {
            report = audit(self.dir(), item);
            is_clean(&report)
        })
        .await;
        assert_eq!(
            (&report["drift"], &report["oversold"]),
            (&json!(0), &json!(0)),
            "{report:#}"
        );
        report
    }
}

/// Waits until the outbox of each segment of `vase`, on one of these masters, has one entry.
pub async fn outboxes_are_trimmed(masters: &[String]) {
    for segment in 0..2 {
        let key = format!("outbox:{{vase:{segment}}}");
        eventually("a trimmed outbox", async || {
            let mut is_trimmed = false;
            for url in masters {
                is_trimmed |= entries(url, &key).await == Some(1);
            }
            is_trimmed
        })
        .await;
    }
}

/// `None`: another master of the cluster has the key.
async fn entries(url: &str, key: &str) -> Option<u64> {
    let mut redis = testbed::patient_connection(url).await.unwrap();
    redis::cmd("XLEN")
        .arg(key)
        .query_async(&mut redis)
        .await
        .ok()
}

/// PATH with `stockade` and PostgreSQL's programs, which packages keep off it.
pub fn path() -> String {
    let stockade = program().parent().unwrap().display().to_string();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut postgres: Vec<_> = versions
        .flatten()
        .map(|version| version.path().join("bin").display().to_string())
        .collect();
    postgres.sort();
    let inherited = std::env::var("PATH").unwrap();
    [&[stockade, inherited][..], &postgres].concat().join(":")
}
