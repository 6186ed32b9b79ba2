//! Running the binary.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

/// The binary, with nothing of the tester's own environment that could steer it.
pub fn stockade(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stockade"));
    for (variable, _) in std::env::vars() {
        if variable.starts_with("STOCKADE_")
            || ["REDIS_URL", "LOCK_URLS", "DATABASE_URL"].contains(&&*variable)
        {
            command.env_remove(variable);
        }
    }
    command.arg("--dir").arg(dir).stdin(Stdio::null());
    command
}

pub fn run(command: &mut Command) -> Output {
    command.output().expect("the binary runs")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}
