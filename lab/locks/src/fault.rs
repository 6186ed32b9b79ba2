//! The faults: what the comparison breaks, and when.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// A fault that the comparison injects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The holder's process is stopped past the end of its lease, and resumes.
    Pause,
    /// The server dies, and a replica that lags behind takes its place.
    Failover,
    /// The server dies and restarts.
    Restart,
    /// The server's wall clock jumps forward.
    Clock,
    /// The holder loses the connection to the servers of the lock.
    Partition,
    /// The response to an acquire request is lost.
    LostAnswer,
    /// The holder's process is killed.
    Kill,
}

/// Lease of the experiments that wait until it ends. etcd grants no shorter one.
const SHORT_LEASE: Duration = Duration::from_secs(1);
/// Lease of the experiments on Redis in which no lease may end by itself.
const LONG_LEASE: Duration = Duration::from_secs(5);

impl Fault {
    /// Every fault, in the order of the table columns.
    pub const ALL: [Self; 7] = [
        Self::Pause,
        Self::Failover,
        Self::Restart,
        Self::Clock,
        Self::Partition,
        Self::LostAnswer,
        Self::Kill,
    ];

    /// Name on the command line and in JSON.
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

    /// Describes the fault to readers of the report.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Pause => {
                "the holder's process is stopped (SIGSTOP) just before it sends its write; it resumes after its lease has ended and the next \
                 contender holds the lock"
            }
            Self::Failover => {
                "the server dies (SIGKILL) while its replica lags, and the replica takes its place; of five independent servers one dies, and it \
                 is one of the only three that the holder had reached"
            }
            Self::Restart => {
                "the server dies (SIGKILL) and restarts: Redis without persistence and therefore empty, all others with their disk; of five \
                 servers one restarts, and the holder's majority depends on it"
            }
            Self::Clock => {
                "the wall clock of the server jumps forward by a minute while the next contender already runs; of five servers, the clock of one \
                 that the holder's majority depends on; with SQLite, the clock of the next contender's machine"
            }
            Self::Partition => {
                "the holder loses the connection to the servers of the lock, but not to the store, while it works; the next contender asks half a \
                 second after the lease has ended"
            }
            Self::LostAnswer => {
                "the acquire request arrives and its response is lost; measured is how long the next contender waits, counted from that request"
            }
            Self::Kill => {
                "the holder's process is killed (SIGKILL) while it holds the lock; measured is how long the next contender waits from then on"
            }
        }
    }

    /// Lease of the locks in an experiment with this fault.
    pub(crate) const fn lease(self) -> Duration {
        match self {
            Self::Pause | Self::Partition | Self::LostAnswer | Self::Kill => SHORT_LEASE,
            Self::Failover | Self::Restart | Self::Clock => LONG_LEASE,
        }
    }

    /// Whether the servers survive the fault unchanged, so that several experiments can share them.
    pub(crate) const fn leaves_servers_intact(self) -> bool {
        matches!(
            self,
            Self::Pause | Self::Partition | Self::LostAnswer | Self::Kill
        )
    }

    /// Whether the experiment measures how long the next contender waits, and not the protected
    /// rows.
    pub(crate) const fn measures_wait(self) -> bool {
        matches!(self, Self::LostAnswer | Self::Kill)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
