//! A server process: launch, readiness, signals, stop.
//!
//! A reply on the port does not prove that our server is ready. If an older process has the port,
//! our server ends and the older one replies in its place. Every readiness check therefore receives
//! the pid of our child.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use tokio::time::sleep;

use crate::{LocalError, Log, Result, child::Child};

/// Time that a starting server may stay silent before we give it up. A server that loads a large
/// data set is not silent.
pub const READY_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(3);

/// Outcome of one readiness check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Our child accepts requests.
    Ready,
    /// Our child works towards readiness, for example loads its data.
    Busy,
    /// No reply yet.
    Silent,
    /// A process that is not our child replies.
    Stranger,
}

/// A server program, its child if it runs, and its log.
#[derive(Debug)]
pub struct ServerProcess {
    program: &'static str,
    child: Option<Child>,
    log: Log,
    ready_timeout: Duration,
    // Of the last run; kept after the server was killed.
    pid: u32,
}

impl ServerProcess {
    /// A server that does not run yet. Error messages call it `program`. A launch gives it up once
    /// it has been silent for `ready_timeout`.
    pub fn new(program: &'static str, log: Log, ready_timeout: Duration) -> Self {
        Self {
            program,
            child: None,
            log,
            ready_timeout,
            pid: 0,
        }
    }

    /// Process id of the last run, also after the process has ended.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Path of the log file.
    pub fn log(&self) -> &Path {
        self.log.path()
    }

    /// The last lines that the present run has logged.
    pub fn log_tail(&self) -> String {
        self.log.tail()
    }

    /// Starts the server and polls `readiness` with its pid until it is ready. Kills a server that
    /// does not become ready. `port` is for errors only.
    pub async fn launch<F: Future<Output = Readiness>>(
        &mut self,
        command: Command,
        port: u16,
        readiness: impl Fn(u32) -> F,
    ) -> Result<()> {
        self.spawn(command).await?;
        let outcome = self.until_ready(port, readiness).await;
        if outcome.is_err() {
            self.kill().await;
        }
        outcome
    }

    async fn spawn(&mut self, mut command: Command) -> Result<()> {
        let failed = |source| LocalError::Run {
            program: self.program.into(),
            source,
        };
        let (out, err) = self.log.begin_run().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = Child::spawn(command).await.map_err(failed)?;
        self.pid = child.pid();
        self.child = Some(child);
        Ok(())
    }

    async fn until_ready<F: Future<Output = Readiness>>(
        &mut self,
        port: u16,
        readiness: impl Fn(u32) -> F,
    ) -> Result<()> {
        let mut deadline = Instant::now() + self.ready_timeout;
        loop {
            match readiness(self.pid).await {
                Readiness::Ready => return Ok(()),
                Readiness::Stranger => return Err(LocalError::PortTaken { port }),
                _ if self.has_ended() => return Err(self.early_end(port)),
                Readiness::Busy => deadline = Instant::now() + self.ready_timeout,
                Readiness::Silent if Instant::now() > deadline => return Err(self.not_ready()),
                Readiness::Silent => {}
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    fn early_end(&self, port: u16) -> LocalError {
        let log = self.log.tail();
        // etcd writes the phrase in lower case.
        if log.to_ascii_lowercase().contains("address already in use") {
            return LocalError::PortTaken { port };
        }
        LocalError::EndedAtStart {
            program: self.program,
            log,
        }
    }

    fn not_ready(&self) -> LocalError {
        LocalError::NotReady {
            program: self.program,
            waited: self.ready_timeout,
            log: self.log.tail(),
        }
    }

    /// Whether the server was killed or has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(Child::has_ended)
    }

    /// Signals the process itself, not its group.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().ok_or(LocalError::NotRunning {
            program: self.program,
        })?;
        child.signal(signal).map_err(|source| LocalError::Signal {
            pid: self.pid,
            source,
        })
    }

    /// Sends SIGKILL to the process group, and waits until the process is gone.
    pub async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await;
        }
    }

    /// Sends `signal` and waits for an orderly end. A later drop kills a process that has not ended
    /// after `timeout`.
    pub async fn stop(&mut self, signal: Signal, timeout: Duration) {
        self.request_stop(signal);
        if let Some(child) = &mut self.child {
            child.ends_within(timeout).await;
        }
    }

    /// [`ServerProcess::stop`] for a `Drop`, which cannot await. Returns whether the server has
    /// ended.
    pub fn stop_blocking(&mut self, signal: Signal, timeout: Duration) -> bool {
        self.request_stop(signal);
        self.child
            .as_mut()
            .is_none_or(|child| child.ends_within_blocking(timeout))
    }

    /// A paused server receives the signal only after SIGCONT. Both calls fail if the server has
    /// already ended; then no action is necessary.
    fn request_stop(&self, signal: Signal) {
        let _ = self.signal(signal);
        let _ = self.signal(Signal::SIGCONT);
    }
}
