//! `stockade-lab bench --only P12`: what it writes, at a small size.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

const ARGUMENTS: &str = "bench --only P12 --items 3 --orders 99 --holds 5 --waves 2 --rate 10 --idle-seconds 1 --settle-seconds 1";
/// Orders of a second at that rate.
const RATE: u64 = 10;

/// The folder with the results of a run with loads of this many seconds.
async fn measured(ledger: &str, seconds: u64) -> TempDir {
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_stockade-lab"))
        .args(ARGUMENTS.split(' '))
        .args(["--seconds", &seconds.to_string()])
        .args(["--ledger", ledger, "--out"])
        .arg(out.path())
        .output()
        .await
        .unwrap();
    // No line has a bound, so only drift or a failure would end it otherwise.
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}\n{stderr}");
    out
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

fn parsed(folder: &Path, name: &str) -> Value {
    serde_json::from_str(&read(folder, name)).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// The counts of a series' steps.
fn counts<'v>(series: &'v Value, name: &str) -> Vec<&'v Value> {
    list(&series["steps"])
        .iter()
        .map(|step| &step[name])
        .collect()
}

fn check_orders(orders: &Value) {
    let [p50, p99, max] = ["p50_ms", "p99_ms", "max_ms"].map(|name| number(&orders[name]));
    assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{orders}");
}

/// Every series grows as its name says, and what it does not grow stays.
fn check_sizes(results: &Value, seconds: u64) {
    let series = list(&results["series"]);
    let grows: Vec<_> = series.iter().map(|series| &series["grows"]).collect();
    assert_eq!(
        grows,
        ["open_items", "closed_items", "orders", "orders_and_items"]
    );
    assert_eq!(counts(&series[0], "open_items"), [0, 3]);
    assert_eq!(counts(&series[0], "closed_items"), [0, 0]);
    assert_eq!(counts(&series[1], "open_items"), [0, 0]);
    assert_eq!(counts(&series[1], "closed_items"), [0, 3]);
    // The second step, of nine, has the orders of the first one's load: each turn of a second had a
    // warm-up of another.
    assert_eq!(counts(&series[2], "orders"), [0, 2 * seconds * RATE, 99]);
    assert_eq!(counts(&series[2], "open_items"), [0, 0, 0]);
    assert_eq!(counts(&series[3], "orders"), [0, 99]);
    assert_eq!(counts(&series[3], "open_items"), [0, 1]);
    assert_eq!(counts(&series[3], "closed_items"), [0, 2]);
}

fn check_step(step: &Value, seconds: u64, has_server: bool) {
    for name in [
        "start_ms",
        "audit_ms",
        "full_audit_ms",
        "metrics_ms",
        "items_page_ms",
        "orders_page_ms",
    ] {
        assert!(number(&step[name]) > 0.0, "{name}: {step}");
    }
    // More than the head of the text.
    assert!(number(&step["metrics_bytes"]) > 1000.0, "{step}");
    for name in ["orders_of_the_hot_item", "orders_on_an_empty_ledger"] {
        assert_eq!(step[name]["measured"], seconds * RATE, "{name}: {step}");
        check_orders(&step[name]);
    }
    let turns = list(&step["turns"]);
    assert_eq!(turns.len() as u64, seconds, "{step}");
    for orders in turns.iter().flat_map(|turn| [&turn["hot"], &turn["empty"]]) {
        assert_eq!(orders["measured"], RATE, "{step}");
        check_orders(orders);
    }
    assert_eq!((&step["drift"], &step["oversold"]), (&json!(0), &json!(0)));
    let idle = &step["idle"];
    if cfg!(target_os = "linux") {
        assert!(number(&idle["service"]) >= 0.0 && number(&idle["redis"]) >= 0.0);
        assert_eq!(idle["ledger"].is_number(), has_server, "{idle}");
        let has_items = step["open_items"] != 0 || step["closed_items"] != 0;
        assert_eq!(
            step["until_audited_cpu_ms"].is_number(),
            has_items,
            "{step}"
        );
    }
}

fn check_expiry(results: &Value, seconds: u64) {
    let steps = list(&results["expiries"][0]["steps"]);
    let sizes: Vec<_> = steps
        .iter()
        .map(|step| [&step["holds"], &step["carts"]])
        .collect();
    assert_eq!(sizes, [[5, 0], [1, 1]]);
    for step in steps {
        assert_eq!(step["quiet"]["measured"], seconds * RATE);
        assert!(number(&step["meanwhile"]["measured"]) >= 1.0);
        assert!(number(&step["back_s"]) > 0.0);
        check_orders(&step["quiet"]);
        check_orders(&step["meanwhile"]);
    }
}

fn check_waves(results: &Value, seconds: u64) {
    let waves = &list(&results["waves"])[0];
    assert_eq!((&waves["waves"], &waves["drift"]), (&json!(2), &json!(0)));
    assert_eq!(waves["quiet"]["measured"], seconds * RATE);
    assert!(number(&waves["added_s"]) > 0.0, "{waves}");
    check_orders(&waves["quiet"]);
    check_orders(&waves["meanwhile"]);
}

/// The table has the machine, the command and a row for each of the nine steps, the expiry, that in carts,
/// and the waves.
fn check_table(table: &str, ledger: &str) {
    assert!(
        table.contains(" cores") && table.contains(ARGUMENTS),
        "{table}"
    );
    let rows = table
        .lines()
        .filter(|line| line.starts_with(&format!("| {ledger} |")));
    assert_eq!(rows.count(), 12, "{table}");
}

/// The chart has two charts of items, two of orders and one of holds.
fn check_chart(chart: &str, ledger: &str) {
    assert!(
        chart.starts_with("<svg ") && chart.ends_with("</svg>\n") && chart.contains(ledger),
        "{chart}"
    );
    let items = if cfg!(target_os = "linux") { 2 } else { 0 };
    assert_eq!(chart.matches("<g ").count(), items + 3, "{chart}");
}

fn check_report(report: &Value) {
    let goal = &report["P12"];
    let lines = list(&goal["lines"]);
    let measured = |text: &str| {
        let all = std::iter::once(goal).chain(lines);
        all.filter(|line| line["measured"].as_str().unwrap().starts_with(text))
            .count()
    };
    // Of four series, of the expiry without and with carts, and of waves.
    assert_eq!((measured("p99 of an order"), measured("audit")), (7, 4));
}

/// The folder with the results of a run, which are complete.
async fn checked(ledger: &str, name: &str, seconds: u64, has_server: bool) -> TempDir {
    let out = measured(ledger, seconds).await;
    let results = parsed(out.path(), "growth.json");
    check_sizes(&results, seconds);
    for series in list(&results["series"]) {
        list(&series["steps"])
            .iter()
            .for_each(|step| check_step(step, seconds, has_server));
    }
    check_expiry(&results, seconds);
    check_waves(&results, seconds);
    check_table(&read(out.path(), "growth.md"), name);
    check_chart(&read(out.path(), "growth.svg"), name);
    out
}

#[tokio::test]
async fn growth_on_postgres_is_measured_step_by_step() {
    let out = checked("postgres", "PostgreSQL", 1, true).await;
    check_report(&parsed(out.path(), "results.json"));
}

#[tokio::test]
async fn growth_on_sqlite_names_the_ledgers_time_as_the_services() {
    let out = checked("sqlite", "SQLite", 2, false).await;
    let table = read(out.path(), "growth.md");
    if cfg!(target_os = "linux") {
        assert_eq!(table.matches("in the service's").count(), 9, "{table}");
    }
}
