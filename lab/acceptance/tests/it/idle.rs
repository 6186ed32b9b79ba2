//! What a process of all roles asks of its stores while no orders come: it does not depend on the number
//! of items, open or closed.

use std::{collections::BTreeMap, fs::File, io::Read as _, time::Duration};

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection, SqliteConnection};
use testkit::Deadline;
use tokio::time::sleep;

use crate::{
    process::{Serving, known, polling_client, stockade},
    test_env::TestEnv,
};

const FEW: usize = 100;
const MANY: usize = 1000;
/// Those that are closed.
const CLOSED: std::ops::Range<usize> = 600..MANY;

/// An idle minute. Both services have the same one: what keeps one of them from its work keeps the other
/// from it, too.
const WINDOW: Duration = Duration::from_secs(60);

/// So many minutes must be idle, one after the other.
const IDLE_MINUTES: u32 = 2;

/// Minutes until they are, at most.
const WINDOWS_MAX: usize = 10;

/// How much more may be asked in the same minute by chance: so often, and this part of what the other
/// service asks. What is repeated for each item every half an hour would be more.
const CHANCE: u64 = 10;
const CHANCE_PART: u64 = 8;

/// Pause of the audits of an item that changes. Each item is audited once, within an hour and a half; with
/// this pause, within 18 seconds. Audits pause for as long as their work took, so on a busy machine a
/// thousand may take ten minutes.
const AUDIT_INTERVAL_MS: u32 = 200;

/// How often each statement and each command was sent, and how many rows each statement has returned.
type Calls = BTreeMap<String, u64>;

/// A service with all roles, and the statements that it logs.
struct Watched {
    env: TestEnv,
    database: String,
    _service: Serving,
    log: File,
    half_line: String,
    /// What Redis has counted so far.
    commands: Calls,
}

impl Watched {
    /// Starts a service that has audited none of the items.
    async fn start(env: TestEnv, database: String) -> Self {
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
            database,
            _service: service,
            log,
            half_line: String::new(),
            commands: Calls::new(),
        }
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

    /// Waits until this many items were audited, however late on a busy machine.
    async fn are_audited(&self, items: usize) {
        let (mut deadline, mut most) = (Deadline::start(), 0);
        loop {
            let audited = audited(&self.database).await;
            if audited >= items {
                return;
            }
            if audited > most {
                (deadline, most) = (Deadline::start(), audited);
            }
            deadline.check(format!("{audited} of {items} items were audited"));
            sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Makes items in a service that ends before it audits any of them, and closes some.
async fn make(env: &TestEnv, items: usize, closed: std::ops::Range<usize>) {
    let mut service = env.serve(&[]).await;
    let url = &service.url;
    let create = async |number| {
        let item = json!({ "id": format!("item-{number}"), "stock": 100, "segments": 2 });
        env.create(url, &item).await;
    };
    let close = async |number| {
        let path = format!("{url}/v1/items/item-{number}/state");
        let close = || {
            let close = polling_client().put(&path).bearer_auth(&env.admin);
            close.json(&json!({ "state": "closed" }))
        };
        assert_eq!(known(close).await.status(), 200);
    };
    each(0..items, create).await;
    each(closed, close).await;
    assert_eq!(service.interrupt(), Some(0));
}

async fn each(numbers: std::ops::Range<usize>, make: impl AsyncFn(usize)) {
    let make = &make;
    stream::iter(numbers)
        .map(|number| make(number))
        .buffer_unordered(8)
        .collect::<()>()
        .await;
}

/// How many items were audited.
async fn audited(database: &str) -> usize {
    const AUDITED: &str = "SELECT count(*) FROM good_audits";
    let audited: i64 = if database.starts_with("postgres") {
        let mut ledger = PgConnection::connect(database).await.unwrap();
        sqlx::query_scalar(AUDITED)
            .fetch_one(&mut ledger)
            .await
            .unwrap()
    } else {
        let mut ledger = SqliteConnection::connect(database).await.unwrap();
        sqlx::query_scalar(AUDITED)
            .fetch_one(&mut ledger)
            .await
            .unwrap()
    };
    usize::try_from(audited).unwrap()
}

/// What was sent more often than in the other window, and not by chance.
fn more(window: &Calls, other: &Calls) -> Vec<(String, u64)> {
    let counts = window.iter().map(|(what, count)| (what.clone(), *count));
    counts
        .filter(|(what, count)| {
            let other = other.get(what).copied().unwrap_or(0);
            *count > other + other / CHANCE_PART + CHANCE
        })
        .collect()
}

/// Waits for minutes in which the service with many items asks no more than that with few.
async fn cost_the_same(few: &mut Watched, many: &mut Watched) {
    let (mut last, mut in_a_row) = (Vec::new(), 0);
    for _ in 0..WINDOWS_MAX {
        let (few, many) = tokio::join!(few.window(), many.window());
        let found = more(&many, &few);
        if !found.is_empty() {
            (last, in_a_row) = (found, 0);
            continue;
        }
        in_a_row += 1;
        if in_a_row == IDLE_MINUTES {
            return;
        }
    }
    panic!("more than with {FEW} items, within {WINDOWS_MAX} minutes: {last:#?}");
}

/// A service with so many items, some of which are closed, on this database of PostgreSQL or on SQLite.
async fn watched(
    postgres: Option<String>,
    items: usize,
    closed: std::ops::Range<usize>,
) -> Watched {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite://{}/ledger.db", folder.path().display());
    let database = postgres.unwrap_or(sqlite);
    let env = TestEnv::with_ledger(folder, &database).await;
    make(&env, items, closed).await;
    let watched = Watched::start(env, database).await;
    watched.are_audited(items).await;
    watched
}

async fn idle_minutes_cost_the_same([few, many]: [Option<String>; 2]) {
    let (few, many) = (watched(few, FEW, 0..0), watched(many, MANY, CLOSED));
    let (mut few, mut many) = tokio::join!(few, many);
    cost_the_same(&mut few, &mut many).await;
}

/// On both ledgers at once: all of them wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_idle_items_cost_as_much_as_a_hundred() {
    let postgres = [
        testkit::postgres_database().await,
        testkit::postgres_database().await,
    ];
    tokio::join!(
        idle_minutes_cost_the_same([None, None]),
        idle_minutes_cost_the_same(postgres.map(Some)),
    );
}
