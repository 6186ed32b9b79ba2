//! Steps that are decided anew when something else was faster.
//!
//! A step that finds another version may have met its own commit: the connection was lost after it,
//! and the repeat of the statement found it done. So once a round has ended without a result, no
//! error of a later one proves that the request has changed nothing.

use tokio::time::Instant;

use super::{Engine, EngineError};

/// The rounds of one request, until its time is over.
struct Rounds {
    until: Instant,
    begun: u32,
}

impl Rounds {
    /// Begins a round. `None`: the time is over.
    fn begin(&mut self) -> Option<Instant> {
        self.begun += 1;
        (Instant::now() < self.until).then_some(self.until)
    }

    /// The result of a round.
    fn end<T>(&self, result: Result<T, EngineError>) -> Result<T, EngineError> {
        match self.begun {
            0 | 1 => result,
            _ => result.map_err(EngineError::after_change),
        }
    }
}

impl Engine {
    /// Repeats a round until it has a result, or fails, or the time of the request is over. A round
    /// is told when that is. It returns `None` if something else was faster.
    pub(super) async fn in_rounds<T, F>(
        &self,
        round: impl Fn(Instant) -> F,
    ) -> Result<T, EngineError>
    where
        F: Future<Output = Result<Option<T>, EngineError>>,
    {
        let until = Instant::now() + self.settings.order_timeout;
        let mut rounds = Rounds { until, begun: 0 };
        let repeated = async {
            while let Some(until) = rounds.begin() {
                if let Some(result) = rounds.end(round(until).await)? {
                    return Ok(result);
                }
            }
            Err(EngineError::OutcomeUnknown(self.settings.order_timeout))
        };
        self.with_deadline(until, repeated).await
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
