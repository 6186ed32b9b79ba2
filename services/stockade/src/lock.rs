//! `stockade lock`: runs a command under a lock, or shows a lock.
//!
//! | file | content |
//! |---|---|
//! | `run` | acquires the lock, runs the command, releases the lock |
//! | `status` | the view of every node, as a table or as JSON |
//! | `backends` | the names of the backends, and the addresses of their servers |
//! | `options` | the options of the lock, and its servers |
//! | `backend` | opens a backend |
//! | `redlock` | the default backend, which reports what it waits for |
//! | `command` | the command: a process group that is signalled, stopped and awaited |
//! | `terminal` | ownership of the terminal |
//! | `seconds` | durations on the command line |

#[cfg_attr(not(feature = "redlock"), allow(unused, reason = "nothing is opened"))]
pub mod backend;
pub mod backends;
mod command;
pub mod options;
#[cfg(feature = "redlock")]
mod redlock;
mod run;
mod seconds;
mod status;
mod terminal;

use std::{fmt, process::ExitCode};

use anyhow::Result;
use clap::Subcommand;

use crate::settings::Layers;

/// EX_UNAVAILABLE: too few servers answer or may vote.
const UNAVAILABLE: u8 = 69;
/// EX_IOERR: the lock was lost before the command had ended.
const LOST: u8 = 74;
/// EX_TEMPFAIL: the lock was not acquired within `--wait`.
const WAIT_TIMED_OUT: u8 = 75;

const EXAMPLES: &str = "\
Examples:
  export LOCK_URLS=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
  stockade lock run nightly-report --wait 0 -- ./report.sh
  stockade lock status nightly-report

Without --nodes and LOCK_URLS, the command uses the nodes of a `stockade up` in the folder --dir.";

/// Runs a command under a lock, or shows a lock.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum LockCommand {
    /// Acquires a lock, runs a command, and releases the lock.
    Run(run::Run),
    /// Shows the state of a lock on every node, without waiting and without changing it.
    Status(status::Status),
}

/// Runs the command line.
pub async fn lock(command: LockCommand, layers: &Layers) -> Result<ExitCode> {
    match command {
        LockCommand::Run(run) => run::run(run, layers).await.map(ExitCode::from),
        LockCommand::Status(status) => status::status(&status, layers).await.map(ExitCode::from),
    }
}

/// Prints a message to standard error; standard output belongs to the command.
fn say(text: impl fmt::Display) {
    eprintln!("stockade: {text}");
}
