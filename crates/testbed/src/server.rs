//! What all servers have in common: launch, wait until it is really ours that answers, signal, stop.
//!
//! An answer on the port is not enough. If an older process has the port then our server ends, and the older one answers in its place;
//! so every [`Answer`] is given with the pid of our child at hand.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use tokio::time::sleep;

use crate::{Result, TestbedError, child::Child, free_port, log::Log, process};

/// How long a server may stay silent. Loading a large data set is not silence.
const READY_WITHIN: Duration = Duration::from_secs(10);
const STOPPED_WITHIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(3);
const PORTS_TO_TRY: usize = 10;

/// What a server says when it is asked whether it is ready.
pub(crate) enum Answer {
    Ready,
    /// It is ours and works on it, for example loads its data.
    Busy,
    Silent,
    /// Somebody answers, but it is not our child.
    Stranger,
}

/// A server that can be launched on a port, and, if that is taken, on another.
pub(crate) trait Launch {
    async fn launch_on(&mut self, port: u16) -> Result<()>;
}

/// Launches on the one given port; or else on free ones, until one of them is still free when the server gets to it.
pub(crate) async fn launch(server: &mut impl Launch, fixed: Option<u16>) -> Result<()> {
    if let Some(port) = fixed {
        return server.launch_on(port).await;
    }
    for _ in 1..PORTS_TO_TRY {
        match server.launch_on(free_port().await).await {
            Err(TestbedError::PortTaken { .. }) => {}
            outcome => return outcome,
        }
    }
    server.launch_on(free_port().await).await
}

/// A server program, its child if it runs, and its log.
#[derive(Debug)]
pub(crate) struct Server {
    program: &'static str,
    child: Option<Child>,
    log: Log,
    // Of the last run; kept for whoever asks about a server that has been killed.
    pid: u32,
}

impl Server {
    pub(crate) fn new(program: &'static str, log: Log) -> Self {
        Self {
            program,
            child: None,
            log,
            pid: 0,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Starts the server and asks it until it is ready. A server that does not get there is killed.
    pub(crate) async fn launch<A: Future<Output = Answer>>(
        &mut self,
        command: Command,
        port: u16,
        ask: impl Fn(u32) -> A,
    ) -> Result<()> {
        self.spawn(command).await?;
        let outcome = self.until_ready(port, ask).await;
        if outcome.is_err() {
            self.kill().await;
        }
        outcome
    }

    async fn spawn(&mut self, mut command: Command) -> Result<()> {
        let failed = |source| TestbedError::Run {
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

    async fn until_ready<A: Future<Output = Answer>>(
        &mut self,
        port: u16,
        ask: impl Fn(u32) -> A,
    ) -> Result<()> {
        let mut deadline = Instant::now() + READY_WITHIN;
        loop {
            match ask(self.pid).await {
                Answer::Ready => return Ok(()),
                Answer::Stranger => return Err(TestbedError::PortTaken { port }),
                _ if self.has_ended() => return Err(self.why_it_ended(port)),
                Answer::Busy => deadline = Instant::now() + READY_WITHIN,
                Answer::Silent if Instant::now() > deadline => return Err(self.not_ready()),
                Answer::Silent => {}
            }
            sleep(POLL).await;
        }
    }

    fn why_it_ended(&self, port: u16) -> TestbedError {
        let log = self.log.tail();
        // etcd writes it small.
        if log.to_ascii_lowercase().contains("address already in use") {
            return TestbedError::PortTaken { port };
        }
        TestbedError::EndedAtStart {
            program: self.program,
            log,
        }
    }

    fn not_ready(&self) -> TestbedError {
        TestbedError::NotReady {
            program: self.program,
            waited: READY_WITHIN,
            log: self.log.tail(),
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(Child::has_ended)
    }

    /// Its children, unless it has ended: then its pid may be somebody else's, and so would be the children.
    pub(crate) fn children(&mut self) -> Vec<u32> {
        if self.has_ended() {
            Vec::new()
        } else {
            process::children(self.pid)
        }
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().ok_or(TestbedError::NotRunning {
            program: self.program,
        })?;
        child.signal(signal).map_err(|source| TestbedError::Signal {
            pid: self.pid,
            source,
        })
    }

    /// SIGSTOP, and waits until the last of its threads has stopped: until then it may still answer.
    pub(crate) async fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        let deadline = Instant::now() + STOPPED_WITHIN;
        while !process::is_stopped(self.pid) {
            if Instant::now() > deadline {
                return Err(TestbedError::NotPaused { pid: self.pid });
            }
            sleep(POLL).await;
        }
        Ok(())
    }

    pub(crate) async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await;
        }
    }

    /// Asks it to end, waits, and kills it if it did not.
    pub(crate) async fn stop(&mut self, signal: Signal, patience: Duration) {
        self.ask_to_end(signal);
        if let Some(child) = &mut self.child {
            child.ends_within(patience).await;
        }
    }

    /// The same for a `Drop`, which cannot await, except that it only tells whether the server has ended.
    pub(crate) fn stop_blocking(&mut self, signal: Signal, patience: Duration) -> bool {
        self.ask_to_end(signal);
        self.child
            .as_mut()
            .is_none_or(|child| child.ends_within_blocking(patience))
    }

    /// A paused server hears nothing until it continues. It may also have ended already; both errors then say so, and nothing is to do.
    fn ask_to_end(&self, signal: Signal) {
        let _ = self.signal(signal);
        let _ = self.signal(Signal::SIGCONT);
    }
}
