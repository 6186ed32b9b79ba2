//! `stockade preflight`, on servers that are fit for a sale and on servers that are not.

use std::process::Command;

use reqwest::Client;
use serde_json::{Value, json};
use testbed::{Postgres, free_port};
use testkit::eventually;

use crate::{
    identity::{AUDIENCE, Issuer},
    process::{Serving, run, stderr, stdout, stockade},
    test_env::TestEnv,
};

/// The exit status, and the checks.
fn checks(command: &mut Command) -> (Option<i32>, Value) {
    let output = run(command.arg("--json"));
    let report = serde_json::from_str(&stdout(&output));
    (
        output.status.code(),
        report.unwrap_or_else(|_| panic!("{}", stderr(&output))),
    )
}

fn preflight(env: &TestEnv, arguments: &[&str]) -> (Option<i32>, Value) {
    checks(stockade(env.dir()).arg("preflight").args(arguments))
}

/// The status of every check with this name whose part begins so.
fn statuses(report: &Value, part: &str, check: &str) -> Vec<String> {
    let all = report["checks"].as_array().unwrap().iter();
    all.filter(|row| row["check"] == check && row["part"].as_str().unwrap().starts_with(part))
        .map(|row| row["status"].as_str().unwrap().to_owned())
        .collect()
}

async fn become_fit(env: &TestEnv) {
    for setting in [
        ["appendonly", "yes"],
        ["appendfsync", "always"],
        ["maxmemory", "100mb"],
        ["maxmemory-policy", "noeviction"],
    ] {
        env.redis(&["CONFIG", "SET", setting[0], setting[1]]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_a_server_is_named_with_its_remedy() {
    let env = TestEnv::new().await;
    become_fit(&env).await;
    let (code, report) = preflight(&env, &[]);
    assert_eq!(code, Some(1), "there is no ledger: {report:#}");
    assert_eq!(statuses(&report, "ledger", "answers"), ["fail"]);
    assert!(run(stockade(env.dir()).arg("migrate")).status.success());
    let (code, report) = preflight(&env, &[]);
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(statuses(&report, "stock Redis", "flushes"), ["ok"]);
    assert_eq!(statuses(&report, "stock Redis", "clock"), ["ok"]);
    assert_eq!(statuses(&report, "recorder", "backlog"), ["ok"]);
    for check in ["Redis takes it", "the ledger records it"] {
        assert_ne!(statuses(&report, "dry order", check), ["fail"], "{check}");
    }
    assert_eq!(
        statuses(&report, "stock Redis", "replicas"),
        ["warn"],
        "it has none"
    );
    for (setting, value, check, status) in [
        ("appendfsync", "everysec", "flushes", "warn"),
        ("appendonly", "no", "flushes", "fail"),
        ("maxmemory", "0", "memory", "warn"),
        ("maxmemory-policy", "allkeys-lru", "eviction", "fail"),
    ] {
        become_fit(&env).await;
        env.redis(&["CONFIG", "SET", setting, value]).await;
        let (code, report) = preflight(&env, &[]);
        assert_eq!(
            statuses(&report, "stock Redis", check),
            [status],
            "{setting}"
        );
        assert_eq!(code == Some(1), status == "fail", "{setting}: {report:#}");
        let table = stdout(&run(stockade(env.dir()).arg("preflight")));
        assert!(table.contains(check), "{table}");
    }
}

/// It answers, and every other row about it may be fine.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_orders_fails() {
    let env = TestEnv::new().await;
    assert!(run(stockade(env.dir()).arg("migrate")).status.success());
    for (setting, value, word) in [
        ("min-replicas-to-write", "1", "NOREPLICAS"),
        ("maxmemory", "1", "OOM"),
    ] {
        become_fit(&env).await;
        let (_, report) = preflight(&env, &[]);
        assert_eq!(statuses(&report, "stock Redis", "takes orders"), ["ok"]);
        env.redis(&["CONFIG", "SET", setting, value]).await;
        let (code, report) = preflight(&env, &[]);
        assert_eq!(code, Some(1), "{report:#}");
        assert_eq!(statuses(&report, "stock Redis", "takes orders"), ["fail"]);
        let rows = report["checks"].as_array().unwrap();
        let row = rows.iter().find(|row| row["check"] == "takes orders");
        let found = row.unwrap()["found"].as_str().unwrap();
        assert!(found.starts_with(word), "{found}");
        env.redis(&["CONFIG", "SET", setting, "0"]).await;
    }
}

/// The dry order takes a unit by the real scripts, and neither store has anything of it afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_order_leaves_nothing_behind() {
    let env = TestEnv::new().await;
    become_fit(&env).await;
    let service = env.serve(&[]).await;
    env.sells(&service.url, "vase", 10).await;
    let events = async || {
        let events = format!("{}/v1/events", service.url);
        env.gets(&events).await["data"].clone()
    };
    let (keys, before) = (env.keys().await, events().await);
    assert!(keys.len() >= 2, "{keys:?}");
    let (code, report) = preflight(&env, &["vase"]);
    assert_eq!(code, Some(0), "{report:#}");
    for check in ["Redis takes it", "the ledger records it"] {
        let status = statuses(&report, "dry order", check);
        assert!(
            status == ["ok"] || status == ["warn"],
            "{check}: {status:?}"
        );
    }
    assert_eq!(env.keys().await, keys);
    assert_eq!(events().await, before);
    let items = format!("{}/v1/items", service.url);
    let listed = env.gets(&items).await;
    assert_eq!(listed["data"].as_array().unwrap().len(), 1, "{listed:#}");
    env.hold(&service.url, "vase", "k").await;

    // Without memory no order is taken, and the keys are removed all the same.
    env.redis(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let (code, report) = preflight(&env, &[]);
    assert_eq!(code, Some(1), "{report:#}");
    assert_eq!(statuses(&report, "dry order", "placed"), ["fail"]);
    become_fit(&env).await;
    let left = env.keys().await;
    assert!(
        left.iter().all(|key| !key.contains("preflight")),
        "{left:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_and_its_plan_are_checked() {
    let env = TestEnv::new().await;
    become_fit(&env).await;
    let service = env.serve(&[]).await;
    let item = json!({ "id": "vase", "stock": 10_000_000, "opens_at": "2999-01-01T00:00:00Z" });
    env.create(&service.url, &item).await;
    let (code, report) = preflight(&env, &["vase", "--buyers", "1000", "--seconds", "60"]);
    assert_eq!(code, Some(0), "{report:#}");
    for check in ["state", "window", "segments", "durability", "audit"] {
        assert_eq!(statuses(&report, "item vase", check), ["ok"], "{check}");
    }
    assert_eq!(statuses(&report, "plan", "Redis masters"), ["ok"]);
    let crowd = ["vase", "--buyers", "100000000", "--seconds", "1"];
    let (code, report) = preflight(&env, &crowd);
    assert_eq!(code, Some(1), "{report:#}");
    assert_eq!(statuses(&report, "plan", "Redis masters"), ["fail"]);
    let (code, report) = preflight(&env, &["jug"]);
    assert_eq!(code, Some(1));
    assert_eq!(statuses(&report, "item jug", "exists"), ["fail"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_and_lock_nodes_must_suffice() {
    let postgres = Postgres::start().await.unwrap();
    let database = postgres.create_database("shop").await.unwrap();
    let env = TestEnv::with_ledger(tempfile::tempdir().unwrap(), &database).await;
    become_fit(&env).await;
    let (code, report) = preflight(&env, &[]);
    assert_eq!(code, Some(1), "the ledger has no schema: {report:#}");
    assert_eq!(statuses(&report, "ledger", "schema"), ["fail"]);
    // Three processes that start together migrate one after the other.
    let mut migrating: Vec<_> = (0..3)
        .map(|_| stockade(env.dir()).arg("migrate").spawn().unwrap())
        .collect();
    for process in &mut migrating {
        assert!(process.wait().unwrap().success());
    }
    let (code, report) = preflight(&env, &[]);
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(statuses(&report, "ledger", "connections"), ["ok"]);
    assert_eq!(statuses(&report, "ledger", "flushes"), ["ok"]);

    let (mine, free) = (env.redis.url(), free_port().await);
    let nodes = format!("{mine}?durable=true,redis://127.0.0.1:{free},redis://127.0.0.1:{free}");
    let (code, report) = checks(
        stockade(env.dir())
            .env("STOCKADE_DATABASE_CONNECTIONS", "1000")
            .env("LOCK_URLS", &nodes)
            .arg("preflight"),
    );
    assert_eq!(code, Some(1), "{report:#}");
    assert_eq!(statuses(&report, "ledger", "connections"), ["fail"]);
    assert_eq!(statuses(&report, "lock", "nodes"), ["fail"]);
    assert_eq!(
        statuses(&report, "lock node", "memory of its votes"),
        ["ok"]
    );
    env.redis(&["CONFIG", "SET", "appendfsync", "everysec"])
        .await;
    let (_, report) = checks(
        stockade(env.dir())
            .env("LOCK_URLS", &nodes)
            .arg("preflight"),
    );
    assert_eq!(
        statuses(&report, "lock node", "memory of its votes"),
        ["fail"]
    );
}

/// A key set signs tokens for other applications, too; the secret of a shop's own login does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_set_without_an_audience_fails_and_a_secret_is_warned_of() {
    let env = TestEnv::new().await;
    become_fit(&env).await;
    assert!(run(stockade(env.dir()).arg("migrate")).status.success());
    let file = env.dir().join("keys.json");
    std::fs::write(&file, Issuer::new("key").key_set()).unwrap();
    let checked = |key_set: bool, audience: bool| {
        let mut command = stockade(env.dir());
        if key_set {
            command.env("STOCKADE_JWKS", &file);
        }
        if audience {
            command.env("STOCKADE_JWT_AUDIENCE", AUDIENCE);
        }
        checks(command.arg("preflight"))
    };
    for (key_set, audience, code, status) in [
        (false, false, 0, "warn"),
        (false, true, 0, "ok"),
        (true, false, 1, "fail"),
        (true, true, 0, "ok"),
    ] {
        let (found, report) = checked(key_set, audience);
        let statuses = statuses(&report, "process", "keys of buyers' tokens");
        assert_eq!(
            (found, &*statuses),
            (Some(code), &[status.to_owned()][..]),
            "{report:#}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_changes_no_schema_unless_it_is_told() {
    let env = TestEnv::new().await;
    let mut command = stockade(env.dir());
    command.env("STOCKADE_MIGRATE", "off");
    let output = run(command.args(["serve", "--listen", "127.0.0.1:0"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("stockade migrate"),
        "{}",
        stderr(&output)
    );
    assert!(run(stockade(env.dir()).arg("migrate")).status.success());
    let mut command = stockade(env.dir());
    command.env("STOCKADE_MIGRATE", "off");
    let mut service = Serving::serve_by(command, free_port().await, &[]).await;
    let health = |url: &str| {
        let listen = url.strip_prefix("http://").unwrap();
        let arguments = ["health", "--ready", "--listen", listen];
        run(stockade(env.dir()).args(arguments)).status.code()
    };
    assert_eq!(health(&service.url), Some(0));
    assert_eq!(service.interrupt(), Some(0));
    assert_eq!(health(&service.url), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_stops_is_first_unready_and_still_answers() {
    let env = TestEnv::new().await;
    // Longer than any test runs: the second signal ends it.
    let flags = ["--drain-delay-ms", "600000"];
    let mut service = env.serve(&flags).await;
    env.sells(&service.url, "vase", 10).await;
    service.terminate();
    let ready = async || {
        let answer = Client::new().get(format!("{}/readyz", service.url));
        answer.send().await.unwrap().status().as_u16()
    };
    eventually("balancers send it nothing more", async || {
        ready().await == 503
    })
    .await;
    env.hold(&service.url, "vase", "k").await;
    assert_eq!(
        service.interrupt(),
        Some(0),
        "the second signal ends the wait"
    );
    let late = Client::new().get(format!("{}/healthz", service.url));
    assert!(late.send().await.is_err(), "nothing listens any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_does_not_flush_is_named_and_warned_of() {
    let lazy = Postgres::builder().config("fsync", "off").start().await;
    let lazy = lazy.unwrap();
    let database = lazy.create_database("shop").await.unwrap();
    let env = TestEnv::with_ledger(tempfile::tempdir().unwrap(), &database).await;
    // Every process that connects says so.
    let migrated = run(stockade(env.dir()).arg("migrate"));
    let warned = stderr(&migrated);
    assert!(
        migrated.status.success() && warned.contains("fsync"),
        "{warned}"
    );
    let (code, report) = preflight(&env, &[]);
    assert_eq!(code, Some(1), "{report:#}");
    assert_eq!(statuses(&report, "ledger", "flushes"), ["fail"]);
}
