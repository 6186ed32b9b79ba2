//! What can go wrong with a lock, with every node's own answer, and whether trying again is safe.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use crate::FencingToken;

/// Why there is no lock, or no longer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else has it, or several asked at once and nobody got a quorum. Trying again is safe.
    #[error("the lock is held: {}", list(votes))]
    Held {
        /// What every node said.
        votes: Vec<Vote>,
    },
    /// Too few nodes can vote. Trying again is safe, and helps once they can.
    #[error("too few nodes can vote: {}", list(causes))]
    NoQuorum {
        /// What every node said.
        causes: Vec<Vote>,
    },
    /// A quorum agreed, but so late that too little of the lease was left. What was taken is given back. Trying again is safe.
    #[error("the quorum took {elapsed:?}, too long for the lease: {}", list(votes))]
    TooLate {
        /// From the first request to the deciding answer.
        elapsed: Duration,
        /// What every node said.
        votes: Vec<Vote>,
    },
    /// The lock was ours and is not any more. Acquire it anew; whatever was done meanwhile is judged by its token.
    #[error("the lock is lost: {}", list(votes))]
    Lost {
        /// What every node said; empty if the lease ended without anybody being asked.
        votes: Vec<Vote>,
    },
    /// The name has had the last token, or holds one that nobody gave. Trying again does not help.
    #[error("no token is left: {}", list(votes))]
    NoTokenLeft {
        /// What every node said.
        votes: Vec<Vote>,
    },
    /// What was asked for makes no sense. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] InvalidArgument),
}

impl LockError {
    /// The lease ended without anybody being asked.
    pub(crate) fn lost() -> Self {
        Self::Lost { votes: Vec::new() }
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Held { .. } | Self::NoQuorum { .. } | Self::TooLate { .. }
        )
    }

    /// What every node said.
    pub fn votes(&self) -> &[Vote] {
        match self {
            Self::Held { votes }
            | Self::TooLate { votes, .. }
            | Self::Lost { votes }
            | Self::NoTokenLeft { votes } => votes,
            Self::NoQuorum { causes } => causes,
            Self::Invalid(_) => &[],
        }
    }
}

/// An argument that is refused before anything is sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidArgument {
    /// A lock without a name.
    #[error("the name of a lock must not be empty")]
    EmptyName,
    /// A name that would be a huge key.
    #[error("the name of a lock is {bytes} bytes long; at most {max} are allowed")]
    NameTooLong {
        /// Of the name.
        bytes: usize,
        /// That are allowed.
        max: usize,
    },
    /// A name that is the key of something else.
    #[error(
        "{0:?} is not allowed as the name of a lock: names must not begin with \"lock:node:\" or end in \":fence\", \":readers\", \":queue\" or \":waiters\""
    )]
    ReservedName(String),
    /// Several locks were asked for, and none was named.
    #[error("expected the name of at least one lock")]
    NoNames,
    /// The backend cannot do that.
    #[error("{backend} locks have no {what}")]
    Unsupported {
        /// Its name.
        backend: &'static str,
        /// That was asked for.
        what: &'static str,
    },
    /// No node, or one of them twice: a quorum of one server is none.
    #[error("a lock needs nodes, each of them once: {0}")]
    Nodes(String),
    /// A name that no statement is made with.
    #[error("the table is {found:?}; {expected}")]
    Table {
        /// That was set.
        found: String,
        /// What would work.
        expected: &'static str,
    },
    /// An address that the backend's client does not understand.
    #[error("expected {expected} for a server, found {found:?}")]
    Url {
        /// Without its credentials.
        found: String,
        /// What would work.
        expected: &'static str,
    },
    /// A duration that cannot work.
    #[error("{setting} is {found:?}; {expected}")]
    Duration {
        /// Of the builder.
        setting: &'static str,
        /// What was set.
        found: Duration,
        /// What would work.
        expected: &'static str,
    },
}

/// A setting that cannot work is named, with what would.
pub(crate) fn expect(
    holds: bool,
    setting: &'static str,
    found: Duration,
    expected: &'static str,
) -> Result<(), InvalidArgument> {
    if holds {
        Ok(())
    } else {
        Err(InvalidArgument::Duration {
            setting,
            found,
            expected,
        })
    }
}

/// One node's answer.
#[derive(Debug, Clone)]
pub struct Vote {
    /// `HOST:PORT`, or what else the backend calls its server.
    pub node: String,
    /// What it said.
    pub answer: Answer,
}

/// What a client library said.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// What a node said, or why it said nothing.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Answer {
    /// Yes.
    Accepted,
    /// Another owner has the lock here.
    Held {
        /// What is left of the other's lease; `None` if its lock has none, or the server does not say.
        remaining: Option<Duration>,
        /// The last token that the node has accepted, if it is known.
        fence: Option<FencingToken>,
    },
    /// The node has accepted this token already, or a later one.
    TooLow {
        /// The token.
        fence: FencingToken,
    },
    /// Others wait in front of us.
    Queued {
        /// How many.
        ahead: usize,
    },
    /// Nobody has the lock here: it expired, or the node lost it.
    Gone,
    /// The node must not vote.
    NotVoting(Exclusion),
    /// The node did not answer within its time. It may still do what it was asked to.
    TimedOut,
    /// The node could not be asked, or refused.
    Failed(Cause),
    /// The node answered what this release does not understand.
    Unreadable(String),
    /// The matter was decided before the node answered.
    NotNeeded,
}

impl Answer {
    pub(crate) fn is_accepted(&self) -> bool {
        matches!(self, Self::Accepted)
    }

    /// Whether the node said no, as opposed to nothing. Asking it again does not change that within a lease.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Held { .. }
                | Self::Queued { .. }
                | Self::TooLow { .. }
                | Self::Gone
                | Self::NotVoting(_)
                | Self::Unreadable(_)
        )
    }

    /// Whether the node is of no use for now.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::NotVoting(_) | Self::TimedOut | Self::Failed(_) | Self::Unreadable(_)
        )
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("accepted"),
            Self::Held {
                remaining: Some(remaining),
                ..
            } => write!(f, "held for {remaining:?}"),
            Self::Held {
                remaining: None, ..
            } => f.write_str("held"),
            Self::TooLow { fence } => write!(f, "has accepted token {fence}"),
            Self::Queued { ahead } => write!(f, "{ahead} wait in front"),
            Self::Gone => f.write_str("nobody has it"),
            Self::NotVoting(exclusion) => exclusion.fmt(f),
            Self::TimedOut => f.write_str("timed out"),
            Self::Failed(error) => error.fmt(f),
            Self::Unreadable(what) => write!(f, "answered {what:?}"),
            Self::NotNeeded => f.write_str("not waited for"),
        }
    }
}

/// Why a node must not vote.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exclusion {
    /// It has not been looked at yet.
    Unknown,
    /// It is new, was restarted or was wiped: it may have forgotten a lock that is still held.
    Forgot {
        /// Until every lease that it may have forgotten is over.
        votes_in: Duration,
    },
    /// Its `maxmemory-policy` may delete a lock that is still held.
    Evicts {
        /// The policy.
        policy: String,
    },
    /// Its wall clock jumped, and with it the end of every lease.
    ClockJumped {
        /// How far, in milliseconds; negative is backwards.
        by_ms: i64,
        /// Until every lease that it may have misjudged is over.
        votes_in: Duration,
    },
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("has not been looked at yet"),
            Self::Forgot { votes_in } => {
                write!(f, "may have forgotten locks, votes in {votes_in:?}")
            }
            Self::Evicts { policy } => write!(f, "may evict locks: maxmemory-policy is {policy}"),
            Self::ClockJumped { by_ms, votes_in } => {
                write!(f, "its clock jumped by {by_ms} ms, votes in {votes_in:?}")
            }
        }
    }
}

/// For an error that shows what was found.
pub(crate) fn without_credentials(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => {
            format!("{}***{}", &url[..scheme + 3], &url[at..])
        }
        _ => url.into(),
    }
}

fn list(votes: &[Vote]) -> String {
    if votes.is_empty() {
        return "the lease is over".into();
    }
    votes
        .iter()
        .map(|vote| format!("{}: {}", vote.node, vote.answer))
        .collect::<Vec<_>>()
        .join("; ")
}
