//! The programs that are measured, and those that measure: built beside this one, or installed.

use std::{env, path::PathBuf, process::Command};

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// `stockade`: the one that STOCKADE_BIN names, or the one beside this program.
pub fn stockade() -> Result<PathBuf> {
    beside("stockade", "STOCKADE_BIN")
}

/// This program.
pub fn ourselves() -> Result<PathBuf> {
    env::current_exe().context("the path of this program")
}

fn beside(name: &str, variable: &str) -> Result<PathBuf> {
    let program = match env::var_os(variable) {
        Some(program) => PathBuf::from(program),
        None => ourselves()?.with_file_name(name),
    };
    let missing = || {
        format!(
            "{}: build it with `cargo build --release -p {name}`, or set {variable}",
            program.display()
        )
    };
    program.canonicalize().with_context(missing)
}

/// A command that nothing of the caller's own environment steers.
pub fn unsteered(program: &PathBuf) -> Command {
    let mut command = Command::new(program);
    for (variable, _) in env::vars_os() {
        let name = variable.to_string_lossy();
        if name.starts_with("STOCKADE_")
            || ["REDIS_URL", "LOCK_URLS", "DATABASE_URL", "HOST"].contains(&&*name)
        {
            command.env_remove(&variable);
        }
    }
    command
}

/// As many open files as any measurement takes, if we may; each connection is one here and one in the service, which inherits the limit.
pub fn raise_file_limit() {
    const WANTED: u64 = 65_536;
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(WANTED.min(hard)), hard);
    }
}

/// Connections that a process may have open beside its other files.
pub fn connections_allowed() -> usize {
    const OTHER_FILES: u64 = 200;
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(256, |(soft, _)| soft);
    usize::try_from(soft.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX)
}
