//! The command that runs under the lock: a process group that is signalled, stopped and awaited.
//!
//! On Linux the kernel kills the command when we are killed. It does not kill processes that the
//! command has started, nor a command that changes its user (`sudo`). Other systems kill nothing.
//! In these cases only the token protects the store.

use std::{
    ffi::OsString,
    io,
    process::{self, Command},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, killpg},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use tokio::{
    signal::unix::{self, SignalKind, signal},
    time::{sleep, timeout},
};

use super::terminal::Terminal;

/// Interval at which we check whether a process group has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// SIGINT and SIGTERM, which we pass on to the command.
pub struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::SIGINT,
            _ = self.terminate.recv() => Signal::SIGTERM,
        }
    }
}

/// The command, leader of a process group.
pub struct Running {
    /// Reaped in `changed` only: until then the system does not reuse the pid.
    leader: process::Child,
    changes: unix::Signal,
    terminal: Option<Terminal>,
    status: Option<u8>,
}

impl Running {
    /// Starts the command. Call this on the main thread: the kernel kills the command when the
    /// thread that started it ends.
    pub fn start(words: &[OsString], environment: &[(&str, String)]) -> io::Result<Self> {
        let [program, arguments @ ..] = words else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)));
        local::kill_with_parent(&mut command);
        let changes = signal(SignalKind::child())?;
        let running = Self {
            leader: command.spawn()?,
            changes,
            terminal: Terminal::find(),
            status: None,
        };
        if let Some(terminal) = &running.terminal {
            terminal.give(running.group());
            // It may have read input before it owned the terminal, and been stopped for that.
            running.signal(Signal::SIGCONT);
        }
        Ok(running)
    }

    /// Passes signals on until the command has ended, and returns its status. The future may be
    /// dropped and the method called again.
    pub async fn ends(&mut self, signals: &mut Signals) -> u8 {
        loop {
            tokio::select! {
                status = self.changed() => match status {
                    Some(status) => return status,
                    None => self.suspend(),
                },
                signal = signals.next() => self.signal(signal),
            }
        }
    }

    /// Sends SIGTERM to the whole group, and SIGKILL to the rest of it after `grace`.
    pub async fn stop(&mut self, grace: Duration) {
        self.signal(Signal::SIGTERM);
        // A stopped process handles SIGTERM only when it is continued.
        self.signal(Signal::SIGCONT);
        let _ = timeout(grace, self.group_ends()).await;
        self.signal(Signal::SIGKILL);
        while self.changed().await.is_none() {}
    }

    async fn group_ends(&mut self) {
        while self.changed().await.is_none() {}
        while killpg(self.group(), None) != Err(Errno::ESRCH) {
            sleep(POLL_INTERVAL).await;
        }
    }

    /// The status with which the command has ended, or `None` when it was stopped (and may be
    /// continued).
    async fn changed(&mut self) -> Option<u8> {
        loop {
            if self.status.is_some() {
                return self.status;
            }
            match waitpid(
                self.group(),
                Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED),
            ) {
                Ok(WaitStatus::Stopped(..)) => return None,
                Ok(WaitStatus::Exited(_, code)) => {
                    self.status = Some(u8::try_from(code).unwrap_or(u8::MAX))
                }
                Ok(WaitStatus::Signaled(_, signal, _)) => self.status = Some(128 + signal as u8),
                Ok(_) => drop(self.changes.recv().await),
                Err(Errno::EINTR) => {}
                // Ended by a signal that `nix` has no name for.
                Err(_) => self.status = Some(128),
            }
        }
    }

    /// Suspends us after Ctrl-Z at the terminal. Without a terminal, the sender of the signal also
    /// continues the command.
    fn suspend(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.suspend(self.group());
            self.signal(Signal::SIGCONT);
        }
    }

    /// Signals the group. The group may already have ended.
    fn signal(&self, signal: Signal) {
        let _ = killpg(self.group(), signal);
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.leader.id().cast_signed())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(terminal) = &self.terminal {
            terminal.reclaim(self.group());
        }
    }
}
