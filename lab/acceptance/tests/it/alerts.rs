//! Alerts, dashboard and runbook: that they name what exists, that each alert fires when it should,
//! and that a real Prometheus evaluates all of it over what real processes serve.

mod prometheus;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::Command,
};

use order::metrics::{CATALOGUE, Kind, Metric};
use reqwest::Client;
use serde_json::{Value, json};
use testbed::free_port;
use testkit::eventually;

use crate::{
    process::{AT_LISTEN, Serving, order, run, stderr, stdout},
    test_env::TestEnv,
};
use prometheus::Prometheus;

fn repository(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

fn deploy(path: &str) -> PathBuf {
    repository("deploy").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The metric that a series belongs to. A histogram has several.
fn metric_of(series: &str) -> Option<&'static Metric> {
    let named = |name: &str| CATALOGUE.iter().find(|metric| metric.name == name);
    named(series).or_else(|| {
        ["_bucket", "_sum", "_count"]
            .iter()
            .filter_map(|suffix| named(series.strip_suffix(suffix)?))
            .find(|metric| metric.kind == Kind::Histogram)
    })
}

/// Names of series in expressions.
fn series(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| {
            let prefixes = ["stockade_", "process_", "http_server_"];
            prefixes.iter().any(|prefix| word.starts_with(prefix))
        })
        .collect()
}

/// Expressions of the panels.
fn dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/stockade.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array());
    targets
        .flatten()
        .map(|target| target["expr"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn rules_and_dashboard_name_only_metrics_of_the_catalogue() {
    for path in [
        "deploy/prometheus/rules.yml",
        "deploy/prometheus/rules.test.yml",
        "deploy/grafana/stockade.json",
    ] {
        let text = read(path);
        let unknown: Vec<_> = series(&text)
            .into_iter()
            .filter(|name| metric_of(name).is_none())
            .collect();
        assert!(unknown.is_empty(), "{path} names {unknown:?}");
    }
    for expression in dashboard() {
        assert!(
            !series(&expression).is_empty() || expression.contains("up{"),
            "{expression} names no metric"
        );
    }
}

#[test]
fn promtool_accepts_the_rules_and_their_tests_pass() {
    for arguments in [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "rules.yml"],
        ["test", "rules", "rules.test.yml"],
    ] {
        let output = run(Command::new("promtool")
            .args(arguments)
            .current_dir(deploy("prometheus")));
        assert!(
            output.status.success(),
            "promtool {arguments:?}: {}{}",
            stdout(&output),
            stderr(&output)
        );
    }
}

/// Pages of the runbook, by alert.
fn pages() -> BTreeMap<String, String> {
    let (rules, mut pages, mut alert) = (
        read("deploy/prometheus/rules.yml"),
        BTreeMap::new(),
        String::new(),
    );
    for line in rules.lines() {
        if let Some((_, name)) = line.split_once("- alert: ") {
            name.clone_into(&mut alert);
        }
        if let Some((_, page)) = line.split_once("runbook_url: ") {
            pages.insert(alert.clone(), page.to_owned());
        }
    }
    pages
}

#[test]
fn every_alert_has_a_test_and_a_page_of_the_runbook() {
    let (tests, summary, pages) = (
        read("deploy/prometheus/rules.test.yml"),
        read("docs/SUMMARY.md"),
        pages(),
    );
    assert!(pages.len() > 10, "{pages:?}");
    for (alert, page) in &pages {
        let cases: Vec<_> = tests
            .split(&format!("alertname: {alert}"))
            .skip(1)
            .collect();
        let fires = |case: &&str| !case.starts_with(", exp_alerts: []");
        assert!(cases.iter().any(fires), "{alert} fires in no test");
        assert!(!cases.iter().all(fires), "{alert} fires in every test");
        let text = read(page);
        for part in [
            "## Symptom",
            "## Is money at risk?",
            "## First command",
            "## Wake",
        ] {
            assert!(text.contains(part), "{page} has no {part:?}");
        }
        assert!(text.contains(&format!("`{alert}`")), "{page}");
        let link = page.strip_prefix("docs/").unwrap();
        assert!(summary.contains(&format!("({link})")), "{link}");
    }
    let written = fs::read_dir(repository("docs/runbook")).unwrap().count();
    let named: BTreeSet<_> = pages.values().collect();
    assert_eq!(
        written,
        named.len() + 1,
        "each page but README has an alert"
    );
}

/// Each metric has a description and the kind of the catalogue.
async fn described(url: &str) {
    let metrics = Client::new().get(format!("{url}/metrics")).send();
    let text = metrics.await.unwrap().text().await.unwrap();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut count = 0;
    for (name, kind) in types.map(|line| line.split_once(' ').unwrap()) {
        let metric = metric_of(name).unwrap_or_else(|| panic!("{name} is not in the catalogue"));
        assert_eq!(metric.kind.as_str(), kind, "{name}");
        let help = format!("# HELP {name} {}\n", metric.help);
        assert!(text.contains(&help), "{help} is not in\n{text}");
        count += 1;
    }
    assert!(count > 10, "{text}");
}

/// Expressions that return nothing although Prometheus has all their metrics.
async fn empty(prometheus: &Prometheus) -> Vec<String> {
    let known = prometheus.metrics().await;
    let mut empty = Vec::new();
    for expression in dashboard() {
        let query = expression
            .replace("$__rate_interval", "1m")
            .replace("$item", "vase");
        let found = prometheus.query(&query).await;
        if found.is_empty() && series(&query).iter().all(|name| known.contains(*name)) {
            empty.push(query);
        }
    }
    empty
}

/// Alerts of wrong units. A busy machine causes none of them.
const OF_UNITS: [&str; 5] = [
    "StockadeDrift",
    "StockadeOversold",
    "StockadeRefundsDue",
    "StockadeRefundsFailed",
    "StockadeStoppedSegments",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_recorder_that_does_not_run_is_an_alert_until_it_runs() {
    let env = TestEnv::new().await;
    env.redis(&["CONFIG", "SET", "maxmemory", "100mb"]).await;
    let ports = [free_port().await, free_port().await];
    let flags = ["--roles", "order,reconciler", AT_LISTEN];
    let service = Serving::serve(env.dir(), ports[0], &flags).await;
    let item = json!({ "id": "vase", "stock": 10, "durability": "accepted" });
    env.create(&service.url, &item).await;
    let prometheus = Prometheus::start(&ports.map(|port| format!("127.0.0.1:{port}"))).await;
    let response = order(&Client::new(), &service.url, "vase", &env.ann, "k")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 202);
    described(&service.url).await;

    let caused = [
        "StockadeProcessDown",
        "StockadeRecorderLag",
        "StockadeRoleAbsent",
    ];
    let mut firing = BTreeSet::new();
    eventually("an alert of the missing recorder", async || {
        firing = prometheus.firing().await;
        caused.iter().all(|alert| firing.contains(*alert))
    })
    .await;
    for alert in OF_UNITS {
        assert!(!firing.contains(alert), "no unit is wrong: {firing:?}");
    }

    let recorder = Serving::serve(env.dir(), ports[1], &["--roles", "recorder"]).await;
    eventually("the end of the alerts", async || {
        let firing = prometheus.firing().await;
        caused.iter().all(|alert| !firing.contains(*alert))
    })
    .await;
    described(&recorder.url).await;

    for rule in prometheus.rules().await {
        assert_eq!(
            (&rule["health"], rule["lastError"].as_str()),
            (&json!("ok"), None),
            "{rule}"
        );
    }
    eventually("data in every panel", async || {
        let empty = empty(&prometheus).await;
        eprintln!("without data: {empty:?}");
        empty.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_lost_its_outbox_is_an_alert_until_it_is_repaired() {
    let env = TestEnv::new().await;
    let ports = [free_port().await, free_port().await];
    let roles = ["--roles", "order,recorder", AT_LISTEN];
    let flags = [&roles[..], &["--order-timeout-ms", "500"]].concat();
    let service = Serving::serve(env.dir(), ports[0], &flags).await;
    env.sells(&service.url, "vase", 10).await;
    // On a busy machine an attempt takes longer than the short time-out. A repeat is the same
    // order.
    eventually("a first order", async || {
        let request = order(&Client::new(), &service.url, "vase", &env.ann, "before");
        request.send().await.unwrap().status() == 201
    })
    .await;
    let prometheus = Prometheus::start(&ports.map(|port| format!("127.0.0.1:{port}"))).await;
    eventually("a first scrape", async || {
        prometheus.metrics().await.contains("stockade_orders_total")
    })
    .await;

    env.redis(&["DEL", "outbox:{vase:0}"]).await;
    let response = order(&Client::new(), &service.url, "vase", &env.ann, "after")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 503, "no recorder may record it");
    let caused = ["StockadeStoppedSegments", "StockadeOutcomeUnknown"];
    eventually("an alert of the stopped segment", async || {
        let firing = prometheus.firing().await;
        caused.iter().all(|alert| firing.contains(*alert))
    })
    .await;

    let _reconciler = Serving::serve(env.dir(), ports[1], &["--roles", "reconciler"]).await;
    eventually("the end of the alert", async || {
        // The other alert looks back for minutes.
        !prometheus.firing().await.contains(caused[0])
    })
    .await;
    env.heals_at(&service.url, "vase").await;
}
