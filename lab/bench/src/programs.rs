//! Paths and environment of the programs that a run starts: built next to this one, or installed.

use std::{env, path::PathBuf, process::Command};

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Path of `stockade`: STOCKADE_BIN, or the binary in the folder of this program.
pub fn stockade() -> Result<PathBuf> {
    sibling("stockade", "STOCKADE_BIN")
}

/// Path of this program.
pub fn ourselves() -> Result<PathBuf> {
    env::current_exe().context("the path of this program")
}

fn sibling(name: &str, variable: &str) -> Result<PathBuf> {
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

/// A command without the variables of the caller's environment that configure Stockade.
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

/// Raises the limit of open files to what the largest measurement needs, as far as the system
/// allows.
///
/// Each connection is a file here and one in the service, which inherits the limit.
pub fn raise_file_limit() {
    const WANTED: u64 = 65_536;
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(WANTED.min(hard)), hard);
    }
}

/// Number of connections that a process may open in addition to its other files.
pub fn connections_allowed() -> usize {
    const OTHER_FILES: u64 = 200;
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(256, |(soft, _)| soft);
    usize::try_from(soft.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX)
}
