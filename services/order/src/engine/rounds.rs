//! Steps that are decided anew when something else was faster.
//!
//! A step that finds another version may have met its own commit: the connection was lost after it,
//! and the repeat of the statement found it done. So once a round has ended without a result, no
//! error of a later one proves that the request has changed nothing.

use tokio::time::Instant;

use super::{Engine, EngineError};

/// The rounds of one request, until its time is over.
pub(super) struct Rounds {
    until: Instant,
    begun: u32,
}

impl Rounds {
    /// Begins a round. `None`: the time is over.
    pub(super) fn begin(&mut self) -> Option<Instant> {
        self.begun += 1;
        (Instant::now() < self.until).then_some(self.until)
    }

    /// The result of a round, or of a part of it.
    pub(super) fn end<T>(&self, result: Result<T, EngineError>) -> Result<T, EngineError> {
        match self.begun {
            0 | 1 => result,
            _ => result.map_err(EngineError::after_change),
        }
    }
}

impl Engine {
    pub(super) fn rounds(&self) -> Rounds {
        Rounds {
            until: Instant::now() + self.settings.order_timeout,
            begun: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EngineError, Instant, Rounds};

    #[test]
    fn only_an_error_of_the_first_round_proves_that_nothing_was_changed() {
        let mut rounds = Rounds {
            until: Instant::now() + std::time::Duration::from_secs(3600),
            begun: 0,
        };
        let refused = || Err::<(), _>(EngineError::before_change(EngineError::Stopping));
        assert!(rounds.begin().is_some());
        assert!(rounds.end(refused()).unwrap_err().proves_unchanged());
        assert!(rounds.begin().is_some());
        assert!(!rounds.end(refused()).unwrap_err().proves_unchanged());
    }
}
