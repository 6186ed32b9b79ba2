//! Ownership of the terminal. A command in a separate process group gets neither input nor Ctrl-C
//! unless it owns the terminal.
//!
//! Ctrl-Z stops only the command's group. The shell waits for our group, so we stop as well.
//! Nothing extends the lock meanwhile, and a command that is continued too late is stopped for a
//! lost lock.

use std::io::{IsTerminal, stdin};

use nix::{
    sys::signal::{SigSet, Signal, kill},
    unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp},
};

/// The terminal on standard input.
pub struct Terminal {
    ours: Pid,
}

impl Terminal {
    /// The terminal, if standard input is one.
    pub fn find() -> Option<Self> {
        stdin().is_terminal().then(|| Self { ours: getpgrp() })
    }

    /// Gives the terminal to a group, if our group owns it.
    pub fn give(&self, group: Pid) {
        self.pass(self.ours, group);
    }

    /// Takes the terminal from a group, if that group owns it.
    pub fn reclaim(&self, group: Pid) {
        self.pass(group, self.ours);
    }

    /// Stops our group after the command's group was stopped, until the shell continues us.
    pub fn suspend(&self, group: Pid) {
        self.reclaim(group);
        // Signals the whole pipeline. On the main thread, which receives the signal first, this
        // returns when the shell has continued us.
        let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);
        self.give(group);
    }

    fn pass(&self, from: Pid, to: Pid) {
        if tcgetpgrp(stdin()) != Ok(from) {
            return;
        }
        // A process in the background is stopped for changing the terminal, unless it blocks
        // SIGTTOU.
        let stops = SigSet::from(Signal::SIGTTOU);
        let _ = stops.thread_block();
        let _ = tcsetpgrp(stdin(), to);
        let _ = stops.thread_unblock();
    }
}
