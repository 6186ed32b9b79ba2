//! `stockade lock run`: acquires the lock, runs the command, releases the lock.
//!
//! When the lock is lost, the command is stopped *afterwards*, and another holder may already have
//! the lock. Only a store that compares tokens keeps the two apart.

use std::{
    ffi::OsString,
    io::{Error, ErrorKind},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::{Args, builder::NonEmptyStringValueParser};
use lock::{Guard, LockError, Request, Wait};
use nix::sys::signal::Signal;
use tokio::time::sleep;

use super::{
    LOST, UNAVAILABLE, WAIT_TIMED_OUT, backend, backends,
    command::{Running, Signals},
    options::{Options, Servers},
    say,
    seconds::{self, Seconds},
};
use crate::settings::Layers;

/// Time for releases in the background to be sent.
const LINGER: Duration = Duration::from_millis(100);

const EXIT_STATUS: &str = "\
The command finds its fencing token in STOCKADE_LOCK_TOKEN, higher than that of every earlier holder, and the lock's name in \
STOCKADE_LOCK_NAME. Pass the token to the store that the command writes to, and let the store refuse lower tokens: no lock can stop a write that is already on its way.

Exit status: that of the command (128 + N if signal N ended it), or
    2  an argument is invalid
   69  too few nodes answer or may vote (without --wait)
   74  the lock was lost before the command had ended; the command was stopped
   75  the lock was not acquired within --wait
  126  the command is not executable
  127  the command does not exist

SIGINT and SIGTERM are passed on to the command; the lock is released when the command has ended. Processes that the command leaves in the \
background are not under the lock. On Linux, the command is killed when this process is killed; its own children are not.

A new or restarted node votes once the longest lease has passed since any run first contacted it. A node whose URL ends in ?durable=true \
votes immediately after a restart if it flushes every write (appendonly yes, appendfsync always) and still has its data; five of them vote \
immediately when all are new. Do not declare a server durable that may come back from a backup or be replaced by its replica.

Examples:
  export LOCK_URLS=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
  stockade lock run nightly-report --wait 0 -- ./report.sh
  stockade lock run item:42 --lease 30 -- sh -c 'echo \"token $STOCKADE_LOCK_TOKEN\"'";

/// Acquires a lock, runs a command, and releases the lock.
#[derive(Args)]
#[command(after_help = EXIT_STATUS)]
pub struct Run {
    /// Name of the lock.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    #[arg(long, default_value = backends::DEFAULT, help = backends_help())]
    backend: String,
    /// Servers of the lock, comma-separated. Default: LOCK_URLS.
    #[arg(long, value_name = "URLS")]
    nodes: Option<String>,
    /// How long the lock stays held if this process dies. The lease is extended while the command
    /// runs.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds::parse)]
    lease: Duration,
    /// Longest lease of any client of these nodes; set the same value everywhere. Default: --lease.
    #[arg(long, value_name = "SECONDS", value_parser = seconds::parse)]
    longest_lease: Option<Duration>,
    /// How long to wait for the lock, and for unreachable nodes; 0 tries once. Default: until the
    /// holder releases it.
    #[arg(long, value_name = "SECONDS", value_parser = seconds::parse)]
    wait: Option<Duration>,
    /// Acquire in the order of arrival, among the waiters that also use --fair.
    #[arg(long)]
    fair: bool,
    /// Share the lock with other holders that use --shared.
    #[arg(long)]
    shared: bool,
    /// When the lock is lost, time between SIGTERM and SIGKILL for the command. Another holder may
    /// already have the lock.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds::parse)]
    grace: Duration,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn backends_help() -> String {
    let names = backends::names();
    format!("Backend of the lock: one of {names}. The databases use a row of the table `locks`")
}

/// Runs the command and returns the exit status.
pub async fn run(run: Run, layers: &Layers) -> Result<u8> {
    let mut signals = Signals::new().context("cannot receive signals")?;
    let options = run.options(layers)?;
    let acquired = tokio::select! {
        acquired = run.acquire(&options) => acquired?,
        signal = signals.next() => return Ok(given_up(signal).await),
    };
    match acquired {
        Ok(guard) => Ok(run.hold(guard, &mut signals).await),
        Err(error) => run.refused(error, &options).await,
    }
}

/// Waits until the votes of single nodes are released, after a signal during the wait.
async fn given_up(signal: Signal) -> u8 {
    sleep(LINGER).await;
    128 + signal as u8
}

impl Run {
    fn options(&self, layers: &Layers) -> Result<Options> {
        let Self {
            lease,
            longest_lease,
            fair,
            ..
        } = *self;
        let backend = backends::find(&self.backend)?;
        let servers = Servers::find(self.nodes.as_deref(), layers, backend)?;
        Ok(Options {
            backend,
            servers,
            lease,
            longest_lease,
            fair,
        })
    }

    /// Tries once. If the lock is held, it prints what it waits for, and waits.
    async fn acquire(&self, options: &Options) -> Result<Result<Guard, LockError>> {
        let started = Instant::now();
        let left = || self.wait.map(|wait| wait.saturating_sub(started.elapsed()));
        let lock = backend::open(options, left()).await?;
        let can = lock.capabilities();
        if self.shared && !can.shared || self.fair && !can.fair {
            bail!(
                "{}: {} locks do not support it",
                if self.shared && !can.shared {
                    "--shared"
                } else {
                    "--fair"
                },
                options.backend
            );
        }
        let request = Request::new(&self.name);
        let request = if self.shared {
            request.shared()
        } else {
            request
        };
        let refusal = match lock.request(request.wait(Wait::Never)).await {
            Err(refusal) if may_wait(&refusal, left()) => refusal,
            result => return Ok(result),
        };
        say(format_args!("waiting for lock {:?}: {refusal}", self.name));
        Ok(lock
            .request(request.wait(left().map_or(Wait::UntilFree, Wait::AtMost)))
            .await)
    }

    async fn refused(&self, error: LockError, options: &Options) -> Result<u8> {
        if let LockError::Invalid(argument) = &error {
            return Err(options.servers.wrong(argument));
        }
        match self.wait {
            Some(wait) => say(format_args!(
                "lock {:?} was not acquired within {}: {error}",
                self.name,
                Seconds(wait)
            )),
            None => say(format_args!(
                "lock {:?} was not acquired: {error}",
                self.name
            )),
        }
        sleep(LINGER).await;
        Ok(if self.wait.is_some() && error.is_retryable() {
            WAIT_TIMED_OUT
        } else {
            UNAVAILABLE
        })
    }

    /// Runs the command while we hold the lock.
    async fn hold(&self, mut guard: Guard, signals: &mut Signals) -> u8 {
        let environment = [
            ("STOCKADE_LOCK_TOKEN", guard.token().to_string()),
            ("STOCKADE_LOCK_NAME", self.name.clone()),
        ];
        let mut command = match Running::start(&self.command, &environment) {
            Ok(command) => command,
            Err(error) => {
                say(format_args!(
                    "cannot run {}: {error}",
                    self.command[0].display()
                ));
                return self.release(guard, not_started(&error)).await;
            }
        };
        let ended = guard.run(|_| command.ends(signals)).await;
        match ended {
            Ok(status) => self.release(guard, status).await,
            Err(error) => {
                say(format_args!(
                    "lock {:?}: {error}; stopping the command",
                    self.name
                ));
                command.stop(self.grace).await;
                // Releases the votes that single nodes still hold.
                let _ = guard.release().await;
                sleep(LINGER).await;
                LOST
            }
        }
    }

    /// Releases the lock. Returns the status of the command, unless the lock was lost before.
    async fn release(&self, guard: Guard, status: u8) -> u8 {
        let released = guard.release().await;
        sleep(LINGER).await;
        match released {
            Ok(()) => status,
            Err(LockError::Lost { .. }) => {
                say(format_args!(
                    "lock {:?} was lost before it was released",
                    self.name
                ));
                LOST
            }
            Err(error) => {
                say(format_args!(
                    "lock {:?} was not released, and ends with its lease: {error}",
                    self.name
                ));
                status
            }
        }
    }
}

/// With `--wait` we wait for the holder and for unreachable servers, without it only for the
/// holder.
fn may_wait(refusal: &LockError, left: Option<Duration>) -> bool {
    match left {
        Some(left) => refusal.is_retryable() && !left.is_zero(),
        None => matches!(refusal, LockError::Held { .. } | LockError::TooLate { .. }),
    }
}

/// The exit statuses of shells for a command that did not start.
fn not_started(error: &Error) -> u8 {
    if error.kind() == ErrorKind::NotFound {
        127
    } else {
        126
    }
}
