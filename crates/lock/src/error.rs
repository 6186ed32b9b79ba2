//! Why a lock is not held: every node's own answer, and whether a retry is safe.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use crate::token::FencingToken;

/// Why a lock could not be acquired, extended or released.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another owner holds the lock, or several contenders split the votes and none got a quorum.
    /// A retry is safe.
    #[error("the lock is held: {}", list(votes))]
    Held {
        /// Answer of every node.
        votes: Vec<Vote>,
    },
    /// Too few nodes can vote. A retry is safe, and helps once they can.
    #[error("too few nodes can vote: {}", list(causes))]
    NoQuorum {
        /// Answer of every node.
        causes: Vec<Vote>,
    },
    /// A quorum agreed, but too little of the lease was left. The acquisition is released again. A
    /// retry is safe.
    #[error("the quorum took {elapsed:?}, too long for the lease: {}", list(votes))]
    TooLate {
        /// Time from the first request to the deciding answer.
        elapsed: Duration,
        /// Answer of every node.
        votes: Vec<Vote>,
    },
    /// We held the lock and do not hold it any more. Acquire it again; the store judges by token
    /// what was written meanwhile.
    #[error("the lock is lost: {}", list(votes))]
    Lost {
        /// Answer of every node; empty if the lease ended without a request.
        votes: Vec<Vote>,
    },
    /// The name has used its last token, or stores a token that no lock gave. A retry does not
    /// help.
    #[error("no token is left: {}", list(votes))]
    NoTokenLeft {
        /// Answer of every node.
        votes: Vec<Vote>,
    },
    /// An argument is invalid. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] InvalidArgument),
}

impl LockError {
    /// The lease ended without a request to any node.
    pub(crate) fn lost() -> Self {
        Self::Lost { votes: Vec::new() }
    }

    /// Whether a retry of the same call may succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Held { .. } | Self::NoQuorum { .. } | Self::TooLate { .. }
        )
    }

    /// The answer of every node.
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
    /// The name is empty.
    #[error("the name of a lock must not be empty")]
    EmptyName,
    /// The name is too long for a key.
    #[error("the name of a lock is {bytes} bytes long; at most {max} are allowed")]
    NameTooLong {
        /// Length of the name.
        bytes: usize,
        /// Longest allowed name.
        max: usize,
    },
    /// The name is the key of other data.
    #[error(
        "{0:?} is not allowed as the name of a lock: names must not begin with \"lock:node:\" or end in \":fence\", \":readers\", \":queue\" or \":waiters\""
    )]
    ReservedName(String),
    /// Several locks were requested without a name.
    #[error("expected the name of at least one lock")]
    NoNames,
    /// The backend does not have this feature.
    #[error("{backend} locks have no {what}")]
    Unsupported {
        /// Name of the backend.
        backend: &'static str,
        /// The requested feature.
        what: &'static str,
    },
    /// No node, or one node twice: a quorum of one server is none.
    #[error("a lock needs nodes, each of them once: {0}")]
    Nodes(String),
    /// The name of the table cannot be used in a statement.
    #[error("the table is {found:?}; {expected}")]
    Table {
        /// The configured name.
        found: String,
        /// What is expected.
        expected: &'static str,
    },
    /// The certificates for encrypted connections cannot be parsed.
    #[error("expected certificates and a key in PEM: {0}")]
    Certificates(String),
    /// The backend's client cannot parse the address.
    #[error("expected {expected} for a server, found {found:?}")]
    Url {
        /// The address without its credentials.
        found: String,
        /// What is expected.
        expected: &'static str,
    },
    /// A parameter of a server's URL that is ours and has an unknown value.
    #[error("{found} in the URL of {url}: expected {expected}")]
    UrlParameter {
        /// Without its credentials and parameters.
        url: String,
        /// As it stands in the URL.
        found: String,
        /// The values that are accepted.
        expected: &'static str,
    },
    /// The duration is out of range.
    #[error("{setting} is {found:?}; {expected}")]
    Duration {
        /// Name of the builder's setting.
        setting: &'static str,
        /// The configured duration.
        found: Duration,
        /// What is expected.
        expected: &'static str,
    },
}

/// One node's answer.
#[derive(Debug, Clone)]
pub struct Vote {
    /// `HOST:PORT`, or the backend's name for its server.
    pub node: String,
    /// Its answer.
    pub answer: Answer,
}

impl Vote {
    /// The votes of a backend with one server, or one cluster that answers as a whole.
    #[cfg(any(
        feature = "_sql",
        feature = "_ephemeral_queue",
        feature = "consul",
        feature = "redis"
    ))]
    pub(crate) fn single(node: &str, answer: Answer) -> Vec<Self> {
        vec![Self {
            node: node.to_owned(),
            answer,
        }]
    }
}

/// An error of a backend's client library.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// What a node answered, or why it did not answer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Answer {
    /// The node accepted the request.
    Accepted,
    /// Another owner holds the lock on this node.
    Held {
        /// What is left of the other owner's lease. `None` if its lock has no expiry, or the server
        /// does not report it.
        remaining: Option<Duration>,
        /// The last token that the node accepted, if known.
        fence: Option<FencingToken>,
    },
    /// The node has accepted this token or a later one already.
    TooLow {
        /// The token that the node accepted.
        fence: FencingToken,
    },
    /// Other waiters are ahead in the queue.
    Queued {
        /// Number of waiters ahead.
        ahead: usize,
    },
    /// The lock is not held on this node: it expired, or the node lost it.
    Gone,
    /// The node must not vote.
    NotVoting(Exclusion),
    /// The node did not answer in time. It may still carry out the request.
    TimedOut,
    /// The node could not be reached, or refused.
    Failed(Cause),
    /// This release cannot read the node's answer.
    Unreadable(String),
    /// The outcome was decided before the node answered.
    NotNeeded,
}

impl Answer {
    #[cfg(feature = "redlock")]
    pub(crate) fn is_accepted(&self) -> bool {
        matches!(self, Self::Accepted)
    }

    /// Whether the node refused, as opposed to not answering. A retry within the lease gets the
    /// same refusal.
    #[cfg(feature = "redlock")]
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

    /// Whether the node cannot vote for now.
    #[cfg(feature = "_redis_server")]
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
            Self::Queued { ahead } => write!(f, "{ahead} waiters ahead"),
            Self::Gone => f.write_str("not held"),
            Self::NotVoting(exclusion) => exclusion.fmt(f),
            Self::TimedOut => f.write_str("timed out"),
            Self::Failed(error) => error.fmt(f),
            Self::Unreadable(what) => write!(f, "answered {what:?}"),
            Self::NotNeeded => f.write_str("not needed"),
        }
    }
}

/// Why a node must not vote.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exclusion {
    /// The node has not been probed yet.
    Unknown,
    /// The node is new, was restarted or was wiped. It may have forgotten a lock that is held.
    Forgot {
        /// Time until every lease that it may have forgotten has ended.
        votes_in: Duration,
    },
    /// The node's `maxmemory-policy` may evict a lock that is held.
    Evicts {
        /// The policy.
        policy: String,
    },
    /// The node's wall clock jumped, and the end of every lease with it.
    ClockJumped {
        /// Size of the jump in milliseconds; negative is backwards.
        by_ms: i64,
        /// Time until every lease that it may have misjudged has ended.
        votes_in: Duration,
    },
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("has not been probed yet"),
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

fn list(votes: &[Vote]) -> String {
    if votes.is_empty() {
        return "the lease has ended".into();
    }
    votes
        .iter()
        .map(|vote| format!("{}: {}", vote.node, vote.answer))
        .collect::<Vec<_>>()
        .join("; ")
}
