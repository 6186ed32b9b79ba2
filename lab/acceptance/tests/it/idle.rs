//! What a process of all roles asks of its stores while no orders come: it does not depend on the number
//! of items.

use std::{collections::BTreeMap, fs::File, io::Read as _, time::Duration};

use futures::{StreamExt, future::join_all, stream};
use serde_json::{Value, json};
use testkit::Deadline;
use tokio::time::sleep;

use crate::{
    process::{Serving, stockade},
    test_env::TestEnv,
};

const FEW: usize = 100;
const MANY: usize = 1000;

/// What is repeated at all is repeated a few times in it.
const WINDOW: Duration = Duration::from_secs(12);

/// Windows in which new items come to rest, at most. Their audits begin some fifteen a second, and on a
/// busy machine, which records late what they are opened with, each has several.
const WINDOWS_MAX: usize = 50;

/// What may be asked more often in one window than in another: what is repeated by the clock, ten times
/// a second at most, even if a busy machine has kept it from the other one altogether. What is repeated
/// each minute for each item would add more.
const CHANCE: u64 = 130;

/// Pause of the audits of an item that changes. Items are audited once after they were created, within an
/// hour and a half; with this pause, within 18 seconds.
const AUDIT_INTERVAL_MS: u32 = 200;

/// How often each statement and each command was sent, and how many rows each statement has returned.
type Calls = BTreeMap<String, u64>;

/// A service with all roles, and the statements that it logs.
struct Watched {
    env: TestEnv,
    service: Serving,
    log: File,
    half_line: String,
    /// What Redis has counted so far.
    commands: Calls,
}

impl Watched {
    async fn start(env: TestEnv) -> Self {
        env.set(&format!("audit_interval_ms = {AUDIT_INTERVAL_MS}"));
        let log = env.dir().join("service.log");
        let mut command = stockade(env.dir());
        command
            .env("STOCKADE_LOG", "sqlx::query=trace")
            .env("STOCKADE_LOG_FORMAT", "json")
            .stderr(File::create(&log).unwrap());
        let log = File::open(log).unwrap();
        let service = Serving::serve_by(command, testbed::free_port().await, &[]).await;
        Self {
            env,
            service,
            log,
            half_line: String::new(),
            commands: Calls::new(),
        }
    }

    async fn create(&self, items: std::ops::Range<usize>) {
        stream::iter(items)
            .map(|number| {
                let item = json!({ "id": format!("item-{number}"), "stock": 100, "segments": 2 });
                async move { self.env.create(&self.service.url, &item).await }
            })
            .buffer_unordered(8)
            .collect::<()>()
            .await;
    }

    /// What was sent since the last call.
    async fn calls(&mut self) -> Calls {
        let mut calls = Calls::new();
        for line in self.new_lines() {
            let entry: Value = serde_json::from_str(&line).unwrap_or_default();
            if entry["target"] != "sqlx::query" {
                continue;
            }
            let statement = format!("{} {}", entry["summary"], entry["db.statement"]);
            let rows = entry["rows_returned"].as_u64().unwrap();
            *calls.entry(format!("rows of {statement}")).or_default() += rows;
            *calls.entry(statement).or_default() += 1;
        }
        let commands = self.commands().await;
        assert!(commands.contains_key("cmdstat_time"), "{commands:?}");
        for (command, count) in &commands {
            let before = self.commands.get(command).copied().unwrap_or(0);
            calls.insert(command.clone(), count - before);
        }
        self.commands = commands;
        calls
    }

    /// The lines of the log that are new, and whole.
    fn new_lines(&mut self) -> Vec<String> {
        let mut text = String::new();
        self.log.read_to_string(&mut text).unwrap();
        self.half_line.push_str(&text);
        let end = self.half_line.rfind('\n').map_or(0, |last| last + 1);
        let rest = self.half_line.split_off(end);
        let whole = std::mem::replace(&mut self.half_line, rest);
        whole.lines().map(ToOwned::to_owned).collect()
    }

    async fn commands(&self) -> Calls {
        let mut redis = testbed::patient_connection(&self.env.redis.url())
            .await
            .unwrap();
        let mut stats = redis::cmd("INFO");
        let stats: redis::InfoDict = stats
            .arg("commandstats")
            .query_async(&mut redis)
            .await
            .unwrap();
        let calls = |(command, stats): (&String, &redis::Value)| {
            let redis::Value::SimpleString(stats) = stats else {
                return None;
            };
            let calls = stats.strip_prefix("calls=")?.split(',').next()?;
            Some((command.clone(), calls.parse().unwrap()))
        };
        stats.iter().filter_map(calls).collect()
    }

    /// What is sent in a window.
    async fn window(&mut self) -> Calls {
        self.calls().await;
        sleep(WINDOW).await;
        let calls = self.calls().await;
        let mut statements = calls.keys().filter(|what| what.contains("SELECT"));
        assert!(statements.next().is_some(), "no statement was logged");
        calls
    }

    /// Waits for two windows that differ by chance alone: the new items were opened, looked at and
    /// audited. Returns the more of either.
    async fn comes_to_rest(&mut self) -> Calls {
        let deadline = Deadline::start();
        let mut last = self.window().await;
        loop {
            let window = self.window().await;
            let differences = [more(&window, &last), more(&last, &window)].concat();
            if differences.is_empty() {
                for (what, count) in window {
                    let of_last = last.entry(what).or_default();
                    *of_last = count.max(*of_last);
                }
                return last;
            }
            deadline.check(format!("it does not come to rest: {differences:#?}"));
            last = window;
        }
    }

    /// Waits for a window in which no more is sent than this.
    async fn rests_as(&mut self, rest: &Calls) {
        let mut last = Vec::new();
        for _ in 0..WINDOWS_MAX {
            last = more(&self.window().await, rest);
            if last.is_empty() {
                return;
            }
        }
        panic!("more than with {FEW} items, in {WINDOWS_MAX} windows: {last:#?}");
    }
}

/// What was sent more often than in the other window, and not by chance.
fn more(window: &Calls, other: &Calls) -> Vec<(String, u64)> {
    let counts = window.iter().map(|(what, count)| (what.clone(), *count));
    counts
        .filter(|(what, count)| *count > other.get(what).copied().unwrap_or(0) + CHANCE)
        .collect()
}

async fn costs_the_same(env: TestEnv) {
    let mut watched = Watched::start(env).await;
    watched.create(0..FEW).await;
    let few = watched.comes_to_rest().await;
    watched.create(FEW..MANY).await;
    watched.rests_as(&few).await;
}

/// On both databases at once: all of them wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_idle_items_cost_as_much_as_a_hundred() {
    let database = testkit::postgres_database().await;
    let folder = tempfile::tempdir().unwrap();
    let environments = [
        TestEnv::new().await,
        TestEnv::with_ledger(folder, &database).await,
    ];
    join_all(environments.map(costs_the_same)).await;
}
