//! What is done to a lock, and when.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// What is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The holder's process is stopped past its lease, and wakes up.
    Pause,
    /// The server dies, and a copy that lags takes its place.
    Failover,
    /// The server dies, and comes back.
    Restart,
    /// The server's clock jumps forward.
    Clock,
    /// The holder is cut off from the servers of the lock.
    Partition,
    /// The answer to an acquisition is cut off.
    LostAnswer,
    /// The holder's process is killed.
    Kill,
}

/// Shorter than any wait for it. etcd grants none that is shorter.
const SHORT: Duration = Duration::from_secs(1);
/// Longer than a trial on Redis: where no lease may end by itself.
const LONG: Duration = Duration::from_secs(5);

impl Fault {
    /// All, in the order of the columns.
    pub const ALL: [Self; 7] = [
        Self::Pause,
        Self::Failover,
        Self::Restart,
        Self::Clock,
        Self::Partition,
        Self::LostAnswer,
        Self::Kill,
    ];

    /// On the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Failover => "failover",
            Self::Restart => "restart",
            Self::Clock => "clock",
            Self::Partition => "partition",
            Self::LostAnswer => "lost-answer",
            Self::Kill => "kill",
        }
    }

    /// What is done, in a sentence for readers.
    pub const fn is(self) -> &'static str {
        match self {
            Self::Pause => {
                "the holder's process is stopped (SIGSTOP) when its write is the next thing that it sends, and resumes when its lease is over and \
                 the next one is inside"
            }
            Self::Failover => {
                "the server dies (SIGKILL) while its copy lags, and the copy takes its place; of five independent servers, one does, and the holder \
                 had reached only three, this one among them"
            }
            Self::Restart => {
                "the server dies (SIGKILL) and comes back: Redis without persistence and so empty, all others with their disk; of five servers, one \
                 that the holder's majority depends on"
            }
            Self::Clock => {
                "the wall clock of the server (of five: of one that the holder's majority depends on) jumps forward by a minute, while the next one \
                 already runs; of a database in a file: the clock of the next one's machine"
            }
            Self::Partition => {
                "the holder is cut off from the servers of the lock, though not from the store, while it works; the next one asks half a second after \
                 the lease is over"
            }
            Self::LostAnswer => {
                "the request for the lock arrives and its answer does not; how long the next one waits, from that request on"
            }
            Self::Kill => {
                "the holder's process is killed (SIGKILL) inside; how long the next one waits from then on"
            }
        }
    }

    /// For how long a lock is asked for.
    pub(super) const fn lease(self) -> Duration {
        match self {
            Self::Pause | Self::Partition | Self::LostAnswer | Self::Kill => SHORT,
            Self::Failover | Self::Restart | Self::Clock => LONG,
        }
    }

    /// Whether it leaves the servers as they are, so that others can use them too.
    pub(super) const fn spares_the_servers(self) -> bool {
        matches!(
            self,
            Self::Pause | Self::Partition | Self::LostAnswer | Self::Kill
        )
    }

    /// Whether what is asked is how long the next one waits, and not what becomes of a row.
    pub(super) const fn is_about_waiting(self) -> bool {
        matches!(self, Self::LostAnswer | Self::Kill)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
