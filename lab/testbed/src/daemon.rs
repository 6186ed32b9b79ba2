//! Any other program, run like a server: a child that dies with us and writes to a log file.
//!
//! A start does not wait for readiness. The caller must check it in the program's own protocol.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use local::{Log, Readiness, ServerProcess};
use nix::sys::signal::Signal;

use crate::{Result, server, timeout};

/// A program that runs until it is stopped. Dropping it kills it.
pub struct Daemon {
    process: ServerProcess,
    command: Box<dyn Fn() -> Command + Send + Sync>,
}

impl Daemon {
    /// Starts the program. `command` makes the command for this and for every later start. The
    /// output is appended to the file `log`.
    pub async fn start(
        name: &'static str,
        log: impl Into<PathBuf>,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Result<Self> {
        let mut daemon = Self {
            process: ServerProcess::new(name, Log::new(log.into()), timeout()),
            command: Box::new(command),
        };
        daemon.restart().await?;
        Ok(daemon)
    }

    /// Process id of the last run, also after the process has ended.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Path of the log file.
    pub fn log(&self) -> &Path {
        self.process.log()
    }

    /// Whether it was killed or has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    /// Sends SIGKILL to it and to those of its children that are in its process group. Waits until
    /// it is gone.
    pub async fn kill(&mut self) -> Result<()> {
        self.process.kill().await;
        Ok(())
    }

    /// Starts it again. Kills it first if it still runs.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.kill().await;
        let ready = |_| std::future::ready(Readiness::Ready);
        Ok(self.process.launch((self.command)(), 0, ready).await?)
    }

    /// Sends SIGSTOP, and waits until it has stopped.
    pub async fn pause(&self) -> Result<()> {
        server::pause(&self.process).await
    }

    /// Sends SIGCONT.
    pub async fn resume(&self) -> Result<()> {
        Ok(self.process.signal(Signal::SIGCONT)?)
    }

    /// Sends SIGTERM and waits for an orderly end. Kills it if that takes longer than `timeout`.
    pub async fn stop(mut self, timeout: Duration) {
        self.process.stop(Signal::SIGTERM, timeout).await;
    }
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon")
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}
