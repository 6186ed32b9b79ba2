//! A command at a terminal.

use std::process::Command;

use super::test_env::{code, five, name, stockade, urls};
use crate::process::{run, stdout};

/// `script` is part of util-linux; without it there is no terminal to test with.
fn at_a_terminal(words: &str) -> Option<Command> {
    let found = Command::new("script")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    found.then(|| {
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", words, "/dev/null"]);
        command
    })
}

#[tokio::test]
async fn the_command_reads_the_keyboard() {
    let (servers, name) = (five().await, name("keyboard"));
    let program = stockade().get_program().to_string_lossy().into_owned();
    let words = format!(
        "'{program}' lock run '{name}' --wait 5 --nodes {} -- sh -c 'read line; echo got $line; exit 5'",
        urls(servers)
    );
    let Some(mut command) = at_a_terminal(&words) else {
        return;
    };
    let typed = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(typed.path(), "hello\n").unwrap();
    let output = run(command.stdin(typed.reopen().unwrap()));
    assert!(stdout(&output).contains("got hello"), "{output:?}");
    assert_eq!(code(&output), 5);
}
