//! The request for a lock, and the capabilities of a backend.

use std::time::Duration;

use crate::error::InvalidArgument;

/// An acquisition: which lock, in which mode, and how long to wait for it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Request<'a> {
    /// Name of the lock.
    pub name: &'a str,
    /// Exclusive or shared.
    pub mode: Mode,
    /// How long to wait while the lock cannot be acquired.
    pub wait: Wait,
}

impl<'a> Request<'a> {
    /// Requests the lock exclusively and waits for as long as another owner holds it.
    pub const fn new(name: &'a str) -> Self {
        Self {
            name,
            mode: Mode::Exclusive,
            wait: Wait::UntilFree,
        }
    }

    /// Requests the lock in shared mode.
    pub const fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// Sets how long to wait.
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Refuses shared mode for a backend that does not have it.
    #[cfg(any(
        feature = "_sql",
        feature = "_ephemeral_queue",
        feature = "consul",
        feature = "redis"
    ))]
    pub(crate) fn require_exclusive(&self, backend: &'static str) -> Result<(), InvalidArgument> {
        match self.mode {
            Mode::Exclusive => Ok(()),
            Mode::Shared => Err(InvalidArgument::Unsupported {
                backend,
                what: "shared mode",
            }),
        }
    }
}

/// Whether other owners may hold the lock at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One owner (a write lock).
    Exclusive,
    /// Any number of owners in shared mode, and none in exclusive mode (a read lock).
    Shared,
}

/// How long an acquisition waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// One attempt.
    Never,
    /// Retries until the timeout, also while servers do not answer.
    AtMost(Duration),
    /// Retries for as long as another owner holds the lock. Servers that do not answer are an
    /// error.
    UntilFree,
}

impl Wait {
    /// What is left of the wait after `elapsed`.
    pub(crate) fn after(self, elapsed: Duration) -> Self {
        match self {
            Self::AtMost(timeout) => Self::AtMost(timeout.saturating_sub(elapsed)),
            unlimited => unlimited,
        }
    }
}

/// What a backend offers. The contract of [`Lock`](crate::Lock) holds for every backend; these are
/// the differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Fencing tokens rise from holder to holder.
    pub fenced: bool,
    /// Waiters acquire the lock in the order in which they arrived.
    pub fair: bool,
    /// Several owners may hold the lock in shared mode.
    pub shared: bool,
    /// The holder may acquire the lock again through the same lock handle.
    pub reentrant: bool,
    /// The server notifies the holder of a loss. Without it, the holder learns of a loss at its
    /// deadline or when it extends.
    pub push_loss: bool,
    /// After a holder has vanished, the lock can stay closed for longer than its lease.
    pub lock_delay: bool,
    /// No machine's wall clock decides when a lock ends.
    pub clock_free: bool,
}
