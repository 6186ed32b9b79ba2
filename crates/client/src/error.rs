//! What can go wrong with a call.

use std::{fmt, sync::Arc};

use crate::{Ended, Problem, ProblemCode};

/// A call that did not succeed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The request was refused, and no attempt of this call has taken effect.
    ///
    /// If [`Error::settles_key`], the service has decided. Otherwise something before the decision
    /// has refused the request, such as a token that has expired (401) or a limit of requests
    /// (429): mend that, and send the same request again.
    #[error("the service refused the request: {0}")]
    Refused(Box<Problem>),

    /// The request may or may not have taken effect. Repeat it, with the same key.
    #[error("the outcome is unknown after {attempts} attempts, repeat the same request: {cause}")]
    OutcomeUnknown {
        /// Number of times that the request was sent.
        attempts: u32,
        /// What happened to the last attempt.
        #[source]
        cause: Box<UnknownCause>,
    },

    /// The key is that of an order or a cart which has ended and holds no units.
    ///
    /// It was placed by an earlier request, and was cancelled, refunded or not paid in time since.
    /// A new attempt of the buyer needs a new key.
    #[error("{0}")]
    NoLongerHeld(Box<Ended>),

    /// The answer is not what the API promises: a defect, or not a Stockade at all. After a success
    /// status of the service the request has taken effect.
    #[error("the response {status} violates the API: {violation}")]
    Contract {
        /// The HTTP status.
        status: u16,
        /// How the response differs from the documented one.
        violation: String,
    },

    /// The request was never sent, because a value cannot be part of one.
    #[error("{field}: expected {expected}")]
    InvalidInput {
        /// The argument.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },

    /// The HTTP library could not be set up.
    #[error("the HTTP client could not be set up")]
    Setup(#[source] Arc<reqwest::Error>),
}

/// Why an outcome is unknown.
#[derive(Clone, Debug)]
pub enum UnknownCause {
    /// The service, or a proxy before it, sent a status that leaves the outcome open.
    Problem(Problem),
    /// No complete response arrived.
    Transport(Arc<reqwest::Error>),
    /// The Tokio runtime ended before the request did.
    Abandoned,
    /// An attempt was lost, and how a later one ended settles nothing.
    Undecided {
        /// What happened to the attempt that was lost.
        lost: Box<UnknownCause>,
        /// A 401, 403, 404 or 429, `unavailable`, or the answer of a proxy.
        answer: Box<Error>,
    },
}

impl Error {
    /// Whether the request may have taken effect although it failed.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. })
    }

    /// False if each attempt was answered that nothing ran (`unavailable`), or if none was sent.
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::OutcomeUnknown { cause, .. } => cause.may_have_run(),
            Self::Contract { .. } => true,
            Self::Refused(_) | Self::NoLongerHeld(_) | Self::InvalidInput { .. } => false,
            Self::Setup(_) => false,
        }
    }

    /// Whether a repeat of the same request can find out what happened.
    ///
    /// False for an unknown outcome with status 500: the service reports an internal defect, which
    /// a repeat does not fix.
    pub fn is_retryable(&self) -> bool {
        let Self::OutcomeUnknown { cause, .. } = self else {
            return false;
        };
        cause.is_retryable()
    }

    /// Whether this is the service's own decision, which counts for earlier attempts as well.
    ///
    /// Ask it after a call whose outcome was unknown, in the call that repeats it: a refusal with
    /// status 401, 403, 404 or 429, or one of a proxy, says nothing about the call before.
    pub fn settles_key(&self) -> bool {
        match self {
            Self::Refused(problem) => problem.settles_key(),
            Self::NoLongerHeld(_) => true,
            _ => false,
        }
    }

    /// False for a refusal that wrote nothing, so that a repeat with the same key is decided anew.
    /// It says nothing about earlier attempts whose outcome is unknown.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Refused(problem) if problem.is_unrecorded())
    }

    /// Whether a report of a payment was refused so that its money must be returned. Other refusals
    /// of a report, also those that settle it, say nothing about the money: it may be another
    /// order's, or returned already.
    pub fn returns_money(&self) -> bool {
        matches!(self, Self::Refused(problem) if problem.returns_money())
    }

    /// Whether this is a refusal with the given code.
    pub fn is(&self, code: ProblemCode) -> bool {
        matches!(self, Self::Refused(problem) if problem.code == code)
    }

    /// What the service reported, if it did.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            Self::OutcomeUnknown { cause, .. } => cause.problem(),
            _ => None,
        }
    }

    /// How an attempt ended that came after a lost one, if that settles nothing.
    pub fn later_answer(&self) -> Option<&Self> {
        let Self::OutcomeUnknown { cause, .. } = self else {
            return None;
        };
        match &**cause {
            UnknownCause::Undecided { answer, .. } => Some(answer),
            _ => None,
        }
    }

    /// Seconds that the service asks to wait before a repeat.
    pub fn retry_after(&self) -> Option<u64> {
        let latest = self.later_answer().unwrap_or(self);
        latest.problem().and_then(|problem| problem.retry_after)
    }
}

impl UnknownCause {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Transport(_) => true,
            Self::Abandoned => false,
            Self::Problem(problem) => matches!(problem.status, 408 | 502..=504),
            Self::Undecided { lost, .. } => lost.is_retryable(),
        }
    }

    fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            Self::Transport(_) | Self::Abandoned => None,
            Self::Undecided { lost, .. } => lost.problem(),
        }
    }

    /// Whether the request may have taken effect.
    pub(crate) fn may_have_run(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.may_have_run(),
            Self::Transport(_) | Self::Abandoned | Self::Undecided { .. } => true,
        }
    }
}

impl fmt::Display for UnknownCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Problem(problem) => problem.fmt(f),
            Self::Transport(error) if error.is_timeout() => f.write_str("no response in time"),
            Self::Transport(error) if error.is_connect() => f.write_str("no connection"),
            Self::Transport(_) => f.write_str("the connection broke"),
            Self::Abandoned => f.write_str("the runtime has ended"),
            Self::Undecided { lost, answer } => write!(f, "{lost}; a later attempt: {answer}"),
        }
    }
}

impl std::error::Error for UnknownCause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Problem(_) | Self::Abandoned => None,
            Self::Transport(error) => Some(error),
            Self::Undecided { lost, .. } => lost.source(),
        }
    }
}
