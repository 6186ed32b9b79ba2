//! Who reads the keyboard: a command in a process group of its own gets neither input nor Ctrl-C unless it is given the terminal.
//!
//! What a reader could get wrong: Ctrl-Z stops the command's group only. The shell waits for ours, so we stop as well; then nothing
//! extends the lock, and a command that is continued too late is told that the lock is lost.

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
    /// If standard input is one.
    pub fn find() -> Option<Self> {
        stdin().is_terminal().then(|| Self { ours: getpgrp() })
    }

    /// Gives it to a group, unless it is not ours to give.
    pub fn give(&self, group: Pid) {
        self.pass(self.ours, group);
    }

    /// Takes it back from a group that has it.
    pub fn take_back(&self, group: Pid) {
        self.pass(group, self.ours);
    }

    /// After the group was stopped: stops us as well, until the shell continues us.
    pub fn suspend(&self, group: Pid) {
        self.take_back(group);
        // With the others of a pipeline. On the main thread, which is given it first, this returns when the shell has continued us.
        let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);
        self.give(group);
    }

    fn pass(&self, from: Pid, to: Pid) {
        if tcgetpgrp(stdin()) != Ok(from) {
            return;
        }
        // Whoever is not in the foreground is stopped for touching the terminal, unless it has blocked that.
        let stops = SigSet::from(Signal::SIGTTOU);
        let _ = stops.thread_block();
        let _ = tcsetpgrp(stdin(), to);
        let _ = stops.thread_unblock();
    }
}
