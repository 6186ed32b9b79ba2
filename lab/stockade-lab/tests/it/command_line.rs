//! The output and the exit status of the command.

use std::{fs, path::Path, process::Output};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

async fn postmortem(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stockade-lab"))
        .arg("postmortem")
        .args(arguments)
        .output()
        .await
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn without_a_case_the_command_lists_all_cases() {
    let output = postmortem(&[]).await;
    assert!(output.status.success());
    let list = text(&output.stdout);
    assert!(
        list.starts_with("maotai "),
        "expected the best known case first: {list}"
    );
    for case in postmortem::catalogue::all() {
        assert!(
            list.lines()
                .any(|line| line.split_whitespace().next() == Some(case.name)),
            "{}: {list}",
            case.name
        );
    }
}

#[tokio::test]
async fn invalid_arguments_are_refused_with_a_reason() {
    let table: [(&[&str], &str); 7] = [
        (&["maotei"], "there is no case `maotei`; there are maotai"),
        (&["maotai", "--speed", "0"], "--speed"),
        (&["maotai", "--stall", "-1"], "--stall"),
        (&["maotai", "--buyers", "0"], "--buyers"),
        (
            &["--all", "--stock", "5"],
            "--stock: only for cases that are named",
        ),
        (&["--all", "maotai"], "--all"),
        (
            &["immortal-lock", "--instances", "3"],
            "--instances: the case `immortal-lock` has no such parameter",
        ),
    ];
    for (arguments, message) in table {
        let output = postmortem(arguments).await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            text(&output.stderr).contains(message),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
    }
}

#[tokio::test]
async fn the_json_of_one_case_is_one_object() {
    let output = postmortem(&["immortal-lock", "--json"]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let case: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(case["case"], "immortal-lock");
    let ways = case["ways"].as_array().unwrap();
    assert!(ways.len() >= 2);
    for way in ways {
        assert!(
            way["name"].is_string() && way["faulty"].is_boolean() && way["holds"].is_boolean(),
            "{way}"
        );
        for count in ["units_sold", "oversold", "stranded", "holders_at_once"] {
            assert!(way[count].is_u64(), "{count}: {way}");
        }
    }
    assert_eq!(
        (&ways[0]["faulty"], &ways[0]["holds"]),
        (&Value::Bool(true), &Value::Bool(false))
    );
}

/// Results as `make oscar` writes them, with so many orders of the checkout that must oversell.
fn results_of_a_shop(plain_orders: u64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let counts = |orders: u64, charged: u64, confirmed: u64| {
        json!({
            "orders": [orders],
            "charged": [charged],
            "confirmed": [confirmed],
            "held": [0],
        })
    };
    let summary = json!({
        "plain": counts(plain_orders, plain_orders, 0),
        "conditional": counts(10, 21, 0),
        "stockade": counts(10, 10, 10),
    });
    let rush = |orders: u64, charges: u64| {
        let answers: Vec<_> = (0..40_u32)
            .map(|n| json!({"at": 2.0 + f64::from(n), "ordered": u64::from(n) < orders}))
            .collect();
        let charges: Vec<_> = (0..u32::try_from(charges).unwrap())
            .map(|n| 0.5 + f64::from(n) / 10.0)
            .collect();
        json!([{"units": 10, "charges": charges, "answers": answers}])
    };
    let rushes = json!({
        "plain": rush(plain_orders, plain_orders),
        "conditional": rush(10, 21),
        "stockade": rush(10, 10),
    });
    fs::write(folder.path().join("summary.json"), summary.to_string()).unwrap();
    fs::write(folder.path().join("rushes.json"), rushes.to_string()).unwrap();
    folder
}

async fn real_shop(results: &Path, page: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stockade-lab"))
        .args(["postmortem", "real-shop", "--json", "--report"])
        .arg(page)
        .env("REAL_SHOP_RESULTS", results)
        .output()
        .await
        .unwrap()
}

#[tokio::test]
async fn the_real_shop_is_judged_by_the_results_of_a_trial_that_has_ended() {
    let (results, page) = (results_of_a_shop(24), tempfile::tempdir().unwrap());
    let output = real_shop(results.path(), page.path()).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let case: Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts: Vec<_> = case["ways"].as_array().unwrap().iter().collect();
    let counts = counts
        .iter()
        .map(|way| (way["units_sold"].as_u64().unwrap(), &way["holds"]));
    let (no, yes) = (Value::Bool(false), Value::Bool(true));
    assert_eq!(
        counts.collect::<Vec<_>>(),
        [(24, &no), (10, &no), (10, &yes)]
    );
    let page = fs::read_to_string(page.path().join("index.html")).unwrap();
    for drawn in [
        "40 guests click",
        "order 11, for 10 units",
        "card 21 is charged",
    ] {
        assert!(page.contains(drawn), "{drawn}");
    }
}

#[tokio::test]
async fn a_shop_that_does_not_oversell_is_not_as_expected() {
    let (results, page) = (results_of_a_shop(10), tempfile::tempdir().unwrap());
    let output = real_shop(results.path(), page.path()).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("not as expected: real-shop"));
}

#[tokio::test]
async fn machine_output_without_a_case_is_an_error_and_no_list() {
    for arguments in [&["--json"][..], &["--report", "/nonexistent"]] {
        let output = postmortem(arguments).await;
        assert_eq!(output.status.code(), Some(2));
        assert!(
            output.stdout.is_empty(),
            "{:?}",
            String::from_utf8(output.stdout)
        );
        assert!(
            String::from_utf8(output.stderr)
                .unwrap()
                .contains("name a case")
        );
    }
}
