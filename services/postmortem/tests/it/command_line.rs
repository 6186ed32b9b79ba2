//! What can be said of the command without playing anything.

use std::process::{Command, Output};

use postmortem::catalogue;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_postmortem")).args(arguments).output().unwrap()
}

#[test]
fn without_a_case_it_lists_all_of_them() {
    let output = run(&[]);
    assert!(output.status.success());
    let list = String::from_utf8(output.stdout).unwrap();
    for case in catalogue::all() {
        assert!(list.contains(case.name()) && list.contains(case.story().title), "{list}");
    }
}

#[test]
fn a_machine_that_asks_for_no_case_gets_an_error_and_no_list() {
    for arguments in [&["--json"][..], &["--report", "/nonexistent"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty(), "{:?}", String::from_utf8(output.stdout));
        assert!(String::from_utf8(output.stderr).unwrap().contains("name a case"));
    }
}
