//! The program as a shell sees it: its exit status says whether there is a verdict.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::{Command, Output};

/// Runs the load tests against a port that no server has.
fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_load-tests"))
        .args(arguments)
        .env_remove("STOCKADE_TOKEN_SECRET")
        .output()
        .unwrap()
}

#[track_caller]
fn has_no_verdict(output: &Output, reason: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(reason), "{error}");
}

#[test]
fn an_unknown_scenario_of_a_mix_is_named_and_there_is_no_verdict() {
    has_no_verdict(&run(&["run", "--mix", "hush=3"]), "hush");
}

#[test]
fn an_unknown_attack_is_named_before_the_first_rush() {
    has_no_verdict(&run(&["hostile", "--only", "half heads"]), "half bodies");
}

#[test]
fn without_a_service_there_is_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = ["rush", "--host", "http://127.0.0.1:1", "--dir"];
    let folder = [folder.path().to_str().unwrap()];
    has_no_verdict(
        &run(&[&nowhere[..], &folder[..]].concat()),
        "is `stockade up` running",
    );
}

#[test]
fn a_storm_without_a_service_has_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = ["storm", "--crowd", "100", "--host", "http://127.0.0.1:1"];
    let folder = ["--dir", folder.path().to_str().unwrap()];
    has_no_verdict(
        &run(&[&nowhere[..], &folder[..]].concat()),
        "is `stockade up` running",
    );
}
