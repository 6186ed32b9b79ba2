//! `stockade lock run`: takes the lock, runs the command, gives the lock back.
//!
//! What a reader could get wrong: when the lock is lost, the command is stopped *afterwards*. Somebody else may have the lock by then. What
//! keeps the two apart is a store that compares tokens.

use std::{
    ffi::OsString,
    io::{Error, ErrorKind},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::{Args, builder::NonEmptyStringValueParser};
use lock::{Guard, LockError, Patience, Request};
use nix::sys::signal::Signal;
use tokio::time::sleep;

use super::{
    LOST, UNAVAILABLE, WAIT_IS_OVER,
    backend::{self, Options, Servers},
    command::{Running, Signals},
    say,
    seconds::{self, Seconds},
};
use crate::settings::Layers;

/// What is given back in the background gets so long to be sent.
const LINGER: Duration = Duration::from_millis(100);

const EXIT_STATUS: &str = "\
The command finds its fencing token in STOCKADE_LOCK_TOKEN, higher than that of every earlier holder, and the lock's name in \
STOCKADE_LOCK_NAME. Pass the token to whatever is written to, and refuse lower ones there: no lock can stop what is already on its way.

Exit status: that of the command (128 + N if signal N ended it), or
    2  the arguments make no sense
   69  too few nodes answer or may vote (without --wait)
   74  the lock was lost before the command had ended; the command was stopped
   75  the lock could not be had within --wait
  126  the command cannot be executed
  127  there is no such command

SIGINT and SIGTERM are passed on to the command; the lock is given back when the command has ended. What the command leaves behind in the \
background is not under the lock. On Linux the command is killed if this process is; what it has started itself is not.

Nodes that are new or have restarted vote when the longest lease is over since they were first looked at, by any run.

Examples:
  export LOCK_URLS=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
  stockade lock run nightly-report --wait 0 -- ./report.sh
  stockade lock run item:42 --lease 30 -- sh -c 'echo \"token $STOCKADE_LOCK_TOKEN\"'";

/// Takes a lock, runs a command, and gives the lock back.
#[derive(Args)]
#[command(after_help = EXIT_STATUS)]
pub struct Run {
    /// The name of the lock.
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// What keeps the lock: redlock, redis, postgres, mysql, sqlite, etcd, zookeeper or consul. Of the databases, the row of a table `locks`.
    #[arg(long, default_value = "redlock")]
    backend: String,
    /// The lock's servers, comma-separated. Default: LOCK_URLS.
    #[arg(long, value_name = "URLS")]
    nodes: Option<String>,
    /// How long the lock stays held when this process dies; it is extended for as long as the command runs.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds::parse)]
    lease: Duration,
    /// The longest lease that anybody uses on these nodes: set the same everywhere. Default: --lease.
    #[arg(long, value_name = "SECONDS", value_parser = seconds::parse)]
    longest_lease: Option<Duration>,
    /// How long to wait for the lock, also for nodes that are away; 0 asks once. Default: for as long as somebody holds it.
    #[arg(long, value_name = "SECONDS", value_parser = seconds::parse)]
    wait: Option<Duration>,
    /// Serve those who wait with --fair in the order in which they came.
    #[arg(long)]
    fair: bool,
    /// Share the lock with others who share it.
    #[arg(long)]
    shared: bool,
    /// When the lock is lost, how long after SIGTERM the command gets SIGKILL. Somebody else may have the lock by then.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds::parse)]
    grace: Duration,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Returns the exit status.
pub async fn run(run: Run, layers: &Layers) -> Result<u8> {
    let mut signals = Signals::new().context("signals cannot be received")?;
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

/// Whoever no longer wants the lock gives back what single nodes may have granted.
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
        let backend = backend::find(&self.backend)?;
        let servers = Servers::find(self.nodes.as_deref(), layers, backend)?;
        Ok(Options {
            backend,
            servers,
            lease,
            longest_lease,
            fair,
        })
    }

    /// Asks once, says what it waits for, and waits.
    async fn acquire(&self, options: &Options) -> Result<Result<Guard, LockError>> {
        let started = Instant::now();
        let left = || self.wait.map(|wait| wait.saturating_sub(started.elapsed()));
        let lock = backend::open(options, left()).await?;
        let can = lock.capabilities();
        if self.shared && !can.shared || self.fair && !can.fair {
            bail!(
                "{}: {} locks cannot do that",
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
        let refusal = match lock.request(request.patience(Patience::None)).await {
            Err(refusal) if may_wait(&refusal, left()) => refusal,
            result => return Ok(result),
        };
        say(format_args!("waiting for lock {:?}: {refusal}", self.name));
        Ok(lock
            .request(request.patience(left().map_or(Patience::UntilFree, Patience::For)))
            .await)
    }

    async fn refused(&self, error: LockError, options: &Options) -> Result<u8> {
        if let LockError::Invalid(argument) = &error {
            return Err(options.servers.wrong(argument));
        }
        match self.wait {
            Some(wait) => say(format_args!(
                "lock {:?} could not be had within {}: {error}",
                self.name,
                Seconds(wait)
            )),
            None => say(format_args!("lock {:?} cannot be had: {error}", self.name)),
        }
        sleep(LINGER).await;
        Ok(if self.wait.is_some() && error.is_retryable() {
            WAIT_IS_OVER
        } else {
            UNAVAILABLE
        })
    }

    /// Runs the command for as long as the lock is ours.
    async fn hold(&self, mut guard: Guard, signals: &mut Signals) -> u8 {
        let environment = [
            ("STOCKADE_LOCK_TOKEN", guard.token().to_string()),
            ("STOCKADE_LOCK_NAME", self.name.clone()),
        ];
        let mut command = match Running::start(&self.command, &environment) {
            Ok(command) => command,
            Err(error) => {
                say(format_args!(
                    "{} cannot be run: {error}",
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
                // What is left of it on single nodes.
                let _ = guard.release().await;
                sleep(LINGER).await;
                LOST
            }
        }
    }

    /// Gives the lock back. The status is that of the command, unless the lock was lost before.
    async fn release(&self, guard: Guard, status: u8) -> u8 {
        let released = guard.release().await;
        sleep(LINGER).await;
        match released {
            Ok(()) => status,
            Err(LockError::Lost { .. }) => {
                say(format_args!(
                    "lock {:?} was lost before it was given back",
                    self.name
                ));
                LOST
            }
            Err(error) => {
                say(format_args!(
                    "lock {:?} could not be given back, and ends with its lease: {error}",
                    self.name
                ));
                status
            }
        }
    }
}

/// With a limit also for servers, without one only for whoever holds the lock.
fn may_wait(refusal: &LockError, left: Option<Duration>) -> bool {
    match left {
        Some(left) => refusal.is_retryable() && !left.is_zero(),
        None => matches!(refusal, LockError::Held { .. } | LockError::TooLate { .. }),
    }
}

/// As shells say it.
fn not_started(error: &Error) -> u8 {
    if error.kind() == ErrorKind::NotFound {
        127
    } else {
        126
    }
}
