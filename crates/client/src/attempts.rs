//! What is known of a request after its attempts.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Error, UnknownCause};

/// How long a lost attempt may still take units: twice the service's bound.
const SETTLED: Duration = Duration::from_secs(10);

/// The attempts of one request. After one whose answer was lost, not every error is the truth.
///
/// A refusal by something before the service, or by a check that comes before the key, says nothing
/// about the lost attempt. The outcome stays unknown until the service itself decides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts {
    /// The request changes nothing, so a lost attempt of it leaves nothing behind.
    reads: bool,
    count: u32,
    lost: Option<Lost>,
}

/// An attempt that may have taken effect without an answer.
#[derive(Clone, Debug)]
struct Lost {
    cause: Box<UnknownCause>,
    at: Instant,
}

impl Attempts {
    pub(crate) fn new(reads: bool) -> Self {
        Self {
            reads,
            ..Self::default()
        }
    }

    /// How many attempts were begun.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Whether an attempt was lost.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Counts an attempt that is about to be sent.
    pub(crate) fn begin(&mut self) {
        self.count += 1;
    }

    /// The error that is true for all attempts, after the latest has ended with `error`.
    pub(crate) fn judge(&mut self, error: Error) -> Error {
        if let Error::OutcomeUnknown { cause, .. } = &error
            && (cause.may_have_run() || self.lost.is_none())
        {
            let cause = cause.clone();
            if cause.may_have_run() && !self.reads {
                self.lost = Some(Lost {
                    cause: cause.clone(),
                    at: Instant::now(),
                });
            }
            return self.unknown(cause);
        }
        match &self.lost {
            Some(lost) if !lost.is_settled_by(&error) => {
                self.unknown(Box::new(UnknownCause::Undecided {
                    lost: lost.cause.clone(),
                    answer: Box::new(error),
                }))
            }
            _ => error,
        }
    }

    fn unknown(&self, cause: Box<UnknownCause>) -> Error {
        Error::OutcomeUnknown {
            attempts: self.count,
            cause,
        }
    }
}

impl Lost {
    fn is_settled_by(&self, error: &Error) -> bool {
        // By then a lost attempt has taken its units, and a repeat would have found them.
        error.settles_key() || !error.is_final() && self.at.elapsed() > SETTLED
    }
}
