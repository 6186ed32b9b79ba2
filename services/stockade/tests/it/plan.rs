//! `stockade plan`: its table, its JSON, and what it refuses.

use std::process::Output;

use serde_json::{Value, json};

use crate::process::{run, stderr, stdout, stockade};

fn plan(arguments: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    run(stockade(folder.path())
        .arg("plan")
        .args(arguments.split_whitespace()))
}

fn planned(arguments: &str) -> Value {
    let output = plan(&format!("{arguments} --json"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

/// Costs that are easily reckoned with: what is built in changes with every measurement.
fn round_costs(postgres_orders_per_second_max: f64) -> tempfile::NamedTempFile {
    let costs = json!({
        "service_us_per_recorded_order": 12.5,
        "service_us_per_accepted_order": 12.5,
        "service_us_per_refusal": 11.3,
        "redis_us_per_order": 4.0,
        "redis_us_per_lone_order": 20.0,
        "recorder_us_per_order": 2.0,
        "postgres_us_per_order": 6.0,
        "postgres_orders_per_second_max": postgres_orders_per_second_max,
        "redis_bytes_per_order": 141.0,
    });
    let results = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(results.path(), json!({ "costs": costs }).to_string()).unwrap();
    results
}

fn planned_at_round_costs(arguments: &str) -> Value {
    let costs = round_costs(200_000.0);
    planned(&format!("{arguments} --costs {}", costs.path().display()))
}

#[test]
fn a_plan_of_a_flash_sale_has_a_table_and_a_summary() {
    let output = plan("--buyers 1000000 --stock 10000 --seconds 60");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for expected in [
        "10,000 orders/s",
        "50,000 refusals/s",
        "1 master, 1 segment for the item",
        "An installation has one ledger, which is planned for ",
        "The stock lasts less than a second at 10,000 orders/s; 2,970,000 requests are refused after that, 50,000 a second.",
        "Redis holds 2 MB for the 10,000 orders",
        "The bottleneck is the order service",
        "a master with a segment for every ",
        "An item keeps its number of segments",
        "Costs: 2 shared cores",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
}

#[test]
fn the_json_output_has_stable_names() {
    let plan = planned_at_round_costs("--buyers 5000000 --stock 5000000 --seconds 10");
    let number = |name: &str| {
        plan[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name} in {plan:#}"))
    };
    assert_eq!(
        (number("orders_per_second"), number("refusals_per_second")),
        (500_000.0, 0.0)
    );
    // 6.25 cores of services, 2 of Redis, 1 of recorders, each to be half busy; and what PostgreSQL
    // does at half.
    assert_eq!(
        (
            number("services"),
            number("redis_masters"),
            number("segments"),
            number("recorders")
        ),
        (7.0, 4.0, 4.0, 2.0)
    );
    assert_eq!(plan["ledger_is_enough"], false);
    assert_eq!(number("seconds_for_one_ledger"), 50.0);
    let of_one = &plan["orders_per_second_of_one"];
    assert_eq!(
        ["redis_master", "recorder", "ledger"].map(|part| of_one[part].as_f64().map(f64::round)),
        [125_000.0, 250_000.0, 100_000.0].map(Some)
    );
    assert_eq!(plan["bottleneck"], "order_service");
    assert_eq!(number("redis_bytes"), 705e6);
    assert!(number("stock_lasts_seconds") == 10.0 && plan["warning"].is_null());
}

/// An installation has one ledger, so no plan names several.
#[test]
fn a_sale_that_is_too_fast_for_the_ledger_needs_more_time() {
    let costs = round_costs(10_000.0);
    let arguments = "--buyers 100000 --stock 100000 --seconds 10";
    let text = stdout(&plan(&format!(
        "{arguments} --costs {}",
        costs.path().display()
    )));
    for expected in [
        "1, for buyers who arrive over 20 s",
        "What helps: buyers who arrive over 20 s, because an installation has one ledger.",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
    assert!(
        !text.contains("ledgers") && !text.contains("partition"),
        "{text}"
    );
}

#[test]
fn the_options_change_what_they_say() {
    let base = "--buyers 1000000 --stock 1000000 --seconds 10";
    let services = |more: &str| {
        planned_at_round_costs(&format!("{base} {more}"))["services"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(
        [
            services(""),
            services("--cores-per-service 4"),
            services("--headroom 0.25"),
            services("--headroom 1")
        ],
        [2, 1, 3, 1]
    );
    let refusals = |more: &str| {
        planned(&format!("--buyers 1000 --stock 10 --seconds 10 {more}"))["refusals_per_second"]
            .as_f64()
            .unwrap()
    };
    assert_eq!(
        [refusals(""), refusals("--tries-per-buyer 10")],
        [300.0, 1000.0]
    );
    assert!(
        planned(&format!("{base} --ledger sqlite"))["warning"]
            .as_str()
            .unwrap()
            .contains("--ledger postgres")
    );
}

#[test]
fn costs_of_ones_own_machine_are_taken_and_what_they_lack_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results.json");
    let costs = json!({ "redis_us_per_order": 40.0, "service_us_per_accepted_order": 1.0, "machine": "my machine" });
    std::fs::write(
        &results,
        json!({ "P1": { "ratio": 0.7 }, "costs": costs }).to_string(),
    )
    .unwrap();
    let arguments = format!(
        "--buyers 100000 --stock 100000 --seconds 1 --durability accepted --costs {}",
        results.display()
    );
    let plan_of_mine = planned(&arguments);
    assert_eq!(
        (
            &plan_of_mine["bottleneck"],
            &plan_of_mine["redis_masters"],
            &plan_of_mine["services"]
        ),
        (&json!("redis"), &json!(8), &json!(1))
    );
    let text = stdout(&plan(&arguments));
    assert!(
        text.contains("Costs: my machine")
            && text.contains("built in: service_us_per_recorded_order"),
        "{text}"
    );
    assert!(!text.contains("built in: redis_us_per_order"), "{text}");
}

#[test]
fn what_makes_no_sense_is_refused_by_the_name_of_the_flag() {
    let table = [
        ("--stock 1 --seconds 1", "--buyers"),
        ("--buyers 0 --stock 1 --seconds 1", "--buyers"),
        ("--buyers 1 --stock 1 --seconds 0", "--seconds"),
        ("--buyers 1 --stock 0 --seconds 1", "--stock"),
        ("--buyers 1 --stock 1000000000001 --seconds 1", "--stock"),
        ("--buyers 1 --stock many --seconds 1", "--stock"),
        (
            "--buyers 1 --stock 1 --seconds 1 --headroom 0",
            "--headroom",
        ),
        (
            "--buyers 1 --stock 1 --seconds 1 --headroom 1.5",
            "--headroom",
        ),
        (
            "--buyers 1 --stock 1 --seconds 1 --headroom NaN",
            "--headroom",
        ),
        (
            "--buyers 1 --stock 1 --seconds 1 --cores-per-service 0",
            "--cores-per-service",
        ),
        (
            "--buyers 1 --stock 1 --seconds 1 --tries-per-buyer 0",
            "--tries-per-buyer",
        ),
        (
            "--buyers 1 --stock 1 --seconds 1 --durability sure",
            "--durability",
        ),
        (
            "--buyers 1 --stock 1 --seconds 1 --ledger mysql",
            "--ledger",
        ),
        (
            "--buyers 1 --stock 1 --seconds 1 --costs nowhere.json",
            "--costs nowhere.json",
        ),
    ];
    for (arguments, flag) in table {
        let output = plan(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(
            stderr(&output).contains(flag) && stdout(&output).is_empty(),
            "{arguments}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn invalid_costs_are_refused_with_file_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.json");
    for (text, expected) in [
        ("", "results.json"),
        (r#"{"P1":{}}"#, "`costs`"),
        (
            r#"{"costs":{"redis_us_per_order":0}}"#,
            "costs.redis_us_per_order",
        ),
        (
            r#"{"costs":{"redis_us_per_order":"4"}}"#,
            "costs.redis_us_per_order",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = plan(&format!(
            "--buyers 1 --stock 1 --seconds 1 --costs {}",
            file.display()
        ));
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(
            stderr(&output).contains("--costs") && stderr(&output).contains(expected),
            "{text}: {}",
            stderr(&output)
        );
    }
}
