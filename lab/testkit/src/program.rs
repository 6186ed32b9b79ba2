//! The program `stockade`: lookup, command, output.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Path of `stockade`: the program that STOCKADE_BIN names, or else the one that cargo has built in
/// the target folder of this test.
pub fn path() -> PathBuf {
    let program = env::var_os("STOCKADE_BIN").map_or_else(in_target_folder, PathBuf::from);
    assert!(
        program.exists(),
        "{}: build it with `cargo test -p stockade --no-run`, or set STOCKADE_BIN",
        program.display()
    );
    program
}

/// `target/debug/stockade`, for a test in `target/debug/deps`.
fn in_target_folder() -> PathBuf {
    let test = env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).expect("a test runs in deps");
    profile.join("stockade")
}

/// A command that runs `stockade` in `dir`, without inherited variables that configure it. `serve`
/// makes the schema of a new ledger.
pub fn stockade(dir: &Path) -> Command {
    stockade_at(&path(), dir)
}

/// The same with another build of the program.
pub fn stockade_at(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    for (variable, _) in env::vars() {
        if variable.starts_with("STOCKADE_")
            || ["REDIS_URL", "LOCK_URLS", "DATABASE_URL"].contains(&&*variable)
        {
            command.env_remove(variable);
        }
    }
    command.env("STOCKADE_MIGRATE", "on");
    command.arg("--dir").arg(dir).stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Output {
    command.output().expect("stockade must be runnable")
}

/// Standard output of a command.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Standard error of a command.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
