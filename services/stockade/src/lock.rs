//! `stockade lock`: a command under a lock, and a look at a lock.
//!
//! | file | is |
//! |---|---|
//! | `run` | takes the lock, runs the command, gives the lock back |
//! | `status` | every node's view, as a table or as JSON |
//! | `backend` | what keeps the lock, and where its servers are |
//! | `redlock` | the default backend, opened in a way that says what it waits for |
//! | `command` | the command: a group of processes that is signalled, stopped and waited for |
//! | `terminal` | who reads the keyboard |
//! | `seconds` | a time on the command line |

#[cfg_attr(not(feature = "redlock"), allow(unused, reason = "nothing is opened"))]
pub mod backend;
mod command;
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
/// EX_TEMPFAIL: the wait is over.
const WAIT_IS_OVER: u8 = 75;

const EXAMPLES: &str = "\
Examples:
  export LOCK_URLS=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
  stockade lock run nightly-report --wait 0 -- ./report.sh
  stockade lock status nightly-report

Without --nodes and LOCK_URLS, the nodes are those of a `stockade up` in the folder --dir.";

/// A command under a lock, and a look at a lock.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum LockCommand {
    /// Takes a lock, runs a command, and gives the lock back.
    Run(run::Run),
    /// Shows what every node says of a lock, at once, also when nodes are away or new. It changes nothing.
    Status(status::Status),
}

/// Does what the command line says.
pub async fn lock(command: LockCommand, layers: &Layers) -> Result<ExitCode> {
    match command {
        LockCommand::Run(run) => run::run(run, layers).await.map(ExitCode::from),
        LockCommand::Status(status) => status::status(&status, layers).await.map(ExitCode::from),
    }
}

/// For people. What goes to standard output is the command's.
fn say(text: impl fmt::Display) {
    eprintln!("stockade: {text}");
}
