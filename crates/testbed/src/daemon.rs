//! Any other program, run like a server: a child that dies with us, whose output is kept in a file.
//!
//! What a reader could get wrong: nobody asks it whether it is ready. Whoever starts it knows how to ask.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nix::sys::signal::Signal;

use crate::{
    Result,
    log::Log,
    server::{Answer, Server},
};

/// A program that runs until it is told to end. Dropping it kills it.
pub struct Daemon {
    server: Server,
    log: PathBuf,
    command: Box<dyn Fn() -> Command + Send + Sync>,
}

impl Daemon {
    /// Starts what `command` makes, now and at every restart. Its output is added to the file `log`.
    pub async fn start(
        name: &'static str,
        log: impl Into<PathBuf>,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Result<Self> {
        let log = log.into();
        let mut daemon = Self {
            server: Server::new(name, Log::new(log.clone())),
            log,
            command: Box::new(command),
        };
        daemon.restart().await?;
        Ok(daemon)
    }

    /// The process of the last start, also when it has ended since.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Where its output is.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Whether it has been killed, or has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.server.has_ended()
    }

    /// SIGKILL for it and for those of its children that are in its process group, and waits until it is gone.
    pub async fn kill(&mut self) -> Result<()> {
        self.server.kill().await;
        Ok(())
    }

    /// Starts it again. Kills it before that if it still runs.
    pub async fn restart(&mut self) -> Result<()> {
        self.server.kill().await;
        self.server
            .launch((self.command)(), 0, |_| std::future::ready(Answer::Ready))
            .await
    }

    /// SIGSTOP, and waits until it has really stopped.
    pub async fn pause(&self) -> Result<()> {
        self.server.pause().await
    }

    /// SIGCONT.
    pub async fn resume(&self) -> Result<()> {
        self.server.signal(Signal::SIGCONT)
    }

    /// SIGTERM, waits for an orderly end, and kills it if that takes longer than `patience`.
    pub async fn stop(mut self, patience: Duration) {
        self.server.stop(Signal::SIGTERM, patience).await;
    }
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon")
            .field("server", &self.server)
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}
