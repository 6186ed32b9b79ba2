//! What can go wrong with a call.

use std::{fmt, sync::Arc};

use crate::{Problem, ProblemCode};

/// A call that did not succeed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The service decided against the request. A repeat of it changes nothing.
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

    /// The service sent what the API does not promise: a defect, or not a Stockade at all. After a
    /// success status the request has taken effect.
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
}

impl Error {
    /// Whether the request may have taken effect although it failed.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. })
    }

    /// Whether a repeat of the same request can find out what happened.
    ///
    /// False for an unknown outcome with status 500: the service reports an internal defect, which
    /// a repeat does not fix.
    pub fn is_retryable(&self) -> bool {
        let Self::OutcomeUnknown { cause, .. } = self else {
            return false;
        };
        match &**cause {
            UnknownCause::Transport(_) => true,
            UnknownCause::Abandoned => false,
            UnknownCause::Problem(problem) => matches!(problem.status, 408 | 502..=504),
        }
    }

    /// False for a refusal that wrote nothing, so that a repeat with the same key is decided anew.
    /// It says nothing about earlier attempts whose outcome is unknown.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Refused(problem) if problem.is_final == Some(false))
    }

    /// Whether this is a refusal with the given code.
    pub fn is(&self, code: ProblemCode) -> bool {
        matches!(self, Self::Refused(problem) if problem.code == code)
    }

    /// What the service reported, if it did.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            Self::OutcomeUnknown { cause, .. } => match &**cause {
                UnknownCause::Problem(problem) => Some(problem),
                UnknownCause::Transport(_) | UnknownCause::Abandoned => None,
            },
            _ => None,
        }
    }

    /// Seconds that the service asks to wait before a repeat.
    pub fn retry_after(&self) -> Option<u64> {
        self.problem().and_then(|problem| problem.retry_after)
    }

    /// The same error, with the number of attempts so far.
    pub(crate) fn after(self, attempts: u32) -> Self {
        match self {
            Self::OutcomeUnknown { cause, .. } => Self::OutcomeUnknown { attempts, cause },
            other => other,
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
        }
    }
}

impl std::error::Error for UnknownCause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Problem(_) | Self::Abandoned => None,
            Self::Transport(error) => Some(error),
        }
    }
}
