//! A child process that cannot outlive us, however we end.
//!
//! Dropping a [`Child`] kills and reaps it. That does not help when we are killed ourselves, so on Linux the child asks the kernel for
//! SIGKILL at its parent's death (`PR_SET_PDEATHSIG`). What a reader could get wrong: the kernel means the parent *thread*. A child spawned
//! from a runtime's worker, or from the thread of one test, would be killed when that thread ends, long before the process does. All
//! children are therefore spawned by one thread that waits for work as long as the process lives, and never ends before it.
//!
//! On other systems only the drop protects us; a test that is itself killed with SIGKILL leaves its servers behind there.

// The one unsafe call of the crate is `pre_exec` in `die_with_us`.
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

/// How often an ending process is asked whether it has ended.
const POLL: Duration = Duration::from_millis(2);

type Job = (Command, oneshot::Sender<io::Result<Child>>);

/// A running child, leader of its own process group.
#[derive(Debug)]
pub(crate) struct Child {
    process: std::process::Child,
    // Once reaped, the pid may be somebody else's: it must never be signalled again.
    reaped: bool,
}

impl Child {
    /// Starts a process that dies with us.
    pub(crate) async fn spawn(mut command: Command) -> io::Result<Self> {
        die_with_us(&mut command);
        let (reply, answer) = oneshot::channel();
        let _ = spawner().send((command, reply));
        answer.await.unwrap_or_else(|_| {
            Err(io::Error::other(
                "the thread that spawns children could not be started",
            ))
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whether it has ended. Reaps it, so that it does not stay as a zombie that looks alive.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.reaped = self.reaped || !matches!(self.process.try_wait(), Ok(None));
        self.reaped
    }

    /// Signals the process itself, not its group.
    pub(crate) fn signal(&self, signal: Signal) -> nix::Result<()> {
        if self.reaped {
            Err(Errno::ESRCH)
        } else {
            kill(self.nix_pid(), signal)
        }
    }

    /// Waits for its end, but not for ever.
    pub(crate) async fn ends_within(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.has_ended() && Instant::now() < deadline {
            sleep(POLL).await;
        }
        self.reaped
    }

    /// The same for a `Drop`, which cannot await.
    pub(crate) fn ends_within_blocking(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while !self.has_ended() && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        self.reaped
    }

    /// SIGKILL for the whole group, then waits for the end of the process.
    pub(crate) async fn kill(&mut self) {
        self.kill_group();
        while !self.has_ended() {
            sleep(POLL).await;
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

/// The thread that all children are children of.
///
/// If it could not be started then its inbox is gone, and every spawn reports that.
fn spawner() -> &'static mpsc::Sender<Job> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel();
        let _ = thread::Builder::new()
            .name("testbed-spawner".into())
            .spawn(move || spawn_for_ever(inbox));
        jobs
    })
}

/// Never returns: the sender lives in a static.
fn spawn_for_ever(inbox: mpsc::Receiver<Job>) {
    for (mut command, reply) in inbox {
        // A `Child` from the start: if nobody waits for the reply any more, it is dropped, and with it the process.
        let _ = reply.send(command.spawn().map(|process| Child {
            process,
            reaped: false,
        }));
    }
}

/// A group of its own, and, on Linux, SIGKILL when the thread that spawns it is gone: the spawner thread, or another that ends last.
///
/// The standard library changes the user, if the command asks for that, before it calls `pre_exec`. The order matters: a change of user
/// clears the signal that was asked for.
pub fn die_with_us(command: &mut Command) {
    command.process_group(0);
    #[cfg(target_os = "linux")]
    {
        let us = Pid::this();
        // SAFETY: runs in the forked child, where only async-signal-safe calls are allowed. These are two plain system calls and an error
        // made of a number; nothing allocates or takes a lock.
        unsafe { command.pre_exec(move || ask_for_death_signal(us)) };
    }
}

#[cfg(target_os = "linux")]
fn ask_for_death_signal(parent: Pid) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The parent may have died before we asked. Then nobody would ever send the signal.
    if nix::unistd::getppid() == parent {
        Ok(())
    } else {
        Err(Errno::ESRCH.into())
    }
}
