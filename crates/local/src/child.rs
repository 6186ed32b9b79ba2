//! A child process that cannot outlive us, however our process ends.
//!
//! Dropping a [`Child`] kills and reaps it. That does not help when our own process is killed. On
//! Linux the child therefore asks the kernel for SIGKILL at the death of its parent
//! (`PR_SET_PDEATHSIG`). The kernel means the parent *thread*: a child spawned from a runtime's
//! worker, or from the thread of one test, would be killed when that thread ends, long before the
//! process does. One dedicated thread therefore spawns all children. It waits for work until the
//! process ends.
//!
//! On other systems only the drop protects us; a process that is killed with SIGKILL leaves its
//! servers running there.

// The one unsafe call of the crate is `pre_exec` in `kill_with_parent`.
#![allow(unsafe_code)]

use std::{
    io,
    os::unix::process::CommandExt,
    process::Command,
    sync::{OnceLock, mpsc},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use tokio::{sync::oneshot, time::sleep};

/// Interval at which we check whether a process has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

type Job = (Command, oneshot::Sender<io::Result<Child>>);

/// A running child, leader of its own process group.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    // Once the child is reaped, the system may reuse its pid: it must not be signalled any more.
    reaped: bool,
}

impl Child {
    /// Starts a process that dies with us.
    pub async fn spawn(mut command: Command) -> io::Result<Self> {
        kill_with_parent(&mut command);
        let (reply, outcome) = oneshot::channel();
        let _ = spawner().send((command, reply));
        outcome.await.unwrap_or_else(|_| {
            Err(io::Error::other(
                "the thread that spawns children could not be started",
            ))
        })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whether the process has ended. Reaps it, because a zombie looks alive.
    pub fn has_ended(&mut self) -> bool {
        self.reaped = self.reaped || !matches!(self.process.try_wait(), Ok(None));
        self.reaped
    }

    /// Signals the process itself, not its group.
    pub fn signal(&self, signal: Signal) -> nix::Result<()> {
        if self.reaped {
            Err(Errno::ESRCH)
        } else {
            kill(self.nix_pid(), signal)
        }
    }

    /// Waits at most this long for the process to end. Returns whether it has ended.
    pub async fn ends_within(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while !self.has_ended() && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
        self.reaped
    }

    /// [`Child::ends_within`] for a `Drop`, which cannot await.
    pub fn ends_within_blocking(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while !self.has_ended() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        self.reaped
    }

    /// Sends SIGKILL to the whole group, and waits for the end of the process.
    pub async fn kill(&mut self) {
        self.kill_group();
        while !self.has_ended() {
            sleep(POLL_INTERVAL).await;
        }
    }

    fn kill_group(&mut self) {
        if !self.has_ended() {
            let _ = killpg(self.nix_pid(), Signal::SIGKILL);
        }
    }

    fn nix_pid(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill_group();
        let _ = self.process.wait();
    }
}

/// Queue of the thread that is the parent of all children.
///
/// If the thread could not be started, its receiver is gone and every spawn reports that.
fn spawner() -> &'static mpsc::Sender<Job> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (jobs, queue) = mpsc::channel();
        let _ = thread::Builder::new()
            .name("child-spawner".into())
            .spawn(move || spawn_jobs(queue));
        jobs
    })
}

/// Never returns: the sender lives in a static.
fn spawn_jobs(queue: mpsc::Receiver<Job>) {
    for (mut command, reply) in queue {
        // The process becomes a `Child` immediately: if the caller has dropped its future, the
        // `Child` is dropped as well and the process is killed.
        let _ = reply.send(command.spawn().map(|process| Child {
            process,
            reaped: false,
        }));
    }
}

/// Gives the command its own process group. On Linux, the kernel also sends it SIGKILL when the
/// thread that spawns it ends: spawn it on a thread that lives as long as the process.
///
/// A command that changes its user does so before `pre_exec` runs. The order matters: a change of
/// the user clears the parent-death signal.
pub fn kill_with_parent(command: &mut Command) {
    command.process_group(0);
    #[cfg(target_os = "linux")]
    {
        let parent = Pid::this();
        // SAFETY: runs in the forked child, where only async-signal-safe calls are allowed. These
        // are two plain system calls and an error made of a number; nothing allocates or takes a
        // lock.
        unsafe { command.pre_exec(move || set_death_signal(parent)) };
    }
}

#[cfg(target_os = "linux")]
fn set_death_signal(parent: Pid) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // If the parent died before the call above, the kernel would never send the signal.
    if nix::unistd::getppid() == parent {
        Ok(())
    } else {
        Err(Errno::ESRCH.into())
    }
}
