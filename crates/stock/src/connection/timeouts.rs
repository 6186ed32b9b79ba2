//! When a client has timed out for so long that it must be replaced.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Time with nothing but timeouts after which a client is replaced. It is longer than the time
/// limit of a request, so several have timed out.
pub(super) const UNRESPONSIVE_MAX: Duration = Duration::from_secs(2);

/// Start of the present run of timeouts.
#[derive(Default)]
pub(super) struct TimeoutRun(Mutex<Option<Instant>>);

impl TimeoutRun {
    /// Notes how a request ended. Returns whether there have been only timeouts for too long. Any
    /// other result, also a refusal, ends the run.
    pub(super) fn note(&self, timed_out: bool, now: Instant) -> bool {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *since = timed_out.then(|| since.unwrap_or(now));
        since.is_some_and(|since| now.duration_since(since) >= UNRESPONSIVE_MAX)
    }

    /// A new client has as much time as the first.
    pub(super) fn end(&self) {
        self.note(false, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{TimeoutRun, UNRESPONSIVE_MAX};

    #[test]
    fn only_a_run_of_timeouts_makes_a_client_unresponsive() {
        let (run, start) = (TimeoutRun::default(), Instant::now());
        let at = |part: u32| start + UNRESPONSIVE_MAX * part / 4;
        assert!(!run.note(true, at(0)) && !run.note(true, at(3)));
        assert!(!run.note(false, at(4)), "a reply ends the run");
        assert!(!run.note(true, at(5)) && !run.note(true, at(8)));
        assert!(run.note(true, at(9)) && run.note(true, at(9) + Duration::from_millis(1)));
        run.end();
        assert!(!run.note(true, at(9)), "a new client has as much time");
    }
}
