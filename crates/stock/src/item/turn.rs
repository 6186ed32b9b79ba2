//! Work that one of many concurrent orders does for all, at most once in an interval.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The time at which the work was begun last.
#[derive(Default)]
pub(super) struct Turn(Mutex<Option<Instant>>);

impl Turn {
    /// Whether the caller should do the work. One caller in `interval` should.
    pub(super) fn is_due(&self, interval: Duration) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| last.elapsed() >= interval);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Turn;

    #[test]
    fn one_of_many_callers_has_the_turn_until_the_interval_is_over() {
        let turn = Turn::default();
        let due = (0..100).filter(|_| turn.is_due(Duration::from_secs(60)));
        assert_eq!(due.count(), 1);
        assert!(turn.is_due(Duration::ZERO));
    }
}
