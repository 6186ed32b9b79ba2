//! The output and the exit status of the command.

use std::process::Output;

use serde_json::Value;
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
