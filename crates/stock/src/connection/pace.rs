//! How often a connection is replaced.
//!
//! A replacement can succeed and help nothing: a user that has lost a right logs in well, and its
//! next order is refused again. Such a run of replacements becomes slower, and is logged once.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Shortest time between two attempts to replace a connection, each of a few logins. A server that
/// refuses a password must not get one for each order.
pub(super) const REPLACE_PAUSE: Duration = Duration::from_millis(250);

/// The longest. Orders must go on within five seconds after the server is right again.
const REPLACE_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The pauses between attempts, of which each has a reason.
pub(super) struct Pace<R> {
    state: Mutex<State<R>>,
    /// Whether a good reply would change anything: the orders must not queue for the lock.
    is_run: AtomicBool,
}

struct State<R> {
    /// When the last attempt began.
    attempted: Option<Instant>,
    pause: Duration,
    /// Why the connection was replaced last, if it has brought no good reply since.
    replaced: Option<R>,
}

impl<R> Default for Pace<R> {
    fn default() -> Self {
        let state = State {
            attempted: None,
            pause: REPLACE_PAUSE,
            replaced: None,
        };
        Self {
            state: Mutex::new(state),
            is_run: AtomicBool::default(),
        }
    }
}

impl<R: Copy + PartialEq> Pace<R> {
    /// Whether it is time for an attempt. If so, it begins. The pause is for a reason that stays
    /// the same; another one is not made to wait longer than the shortest.
    pub(super) fn may_attempt(&self, reason: R, now: Instant) -> bool {
        let mut state = self.state();
        let pause = match state.replaced {
            Some(replaced) if replaced == reason => state.pause,
            _ => REPLACE_PAUSE,
        };
        let last = state.attempted;
        let may = last.is_none_or(|last| now.duration_since(last) >= pause);
        if may {
            state.attempted = Some(now);
        }
        may
    }

    /// Notes that an attempt succeeded. Returns whether it is the first of a run.
    pub(super) fn replaced(&self, reason: R) -> bool {
        let mut state = self.state();
        self.is_run.store(true, Ordering::Relaxed);
        let is_first = state.replaced.replace(reason) != Some(reason);
        state.pause = match is_first {
            true => REPLACE_PAUSE,
            false => (state.pause * 2).min(REPLACE_PAUSE_MAX),
        };
        is_first
    }

    /// Notes a good reply, which ends the run.
    pub(super) fn is_well(&self) {
        if self.is_run.load(Ordering::Relaxed) {
            let mut state = self.state();
            self.is_run.store(false, Ordering::Relaxed);
            state.replaced = None;
            state.pause = REPLACE_PAUSE;
        }
    }

    fn state(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Pace, REPLACE_PAUSE, REPLACE_PAUSE_MAX};

    /// Pauses between replacements for one reason, each as soon as it may be.
    fn pauses(pace: &Pace<u8>, start: Instant, count: usize) -> Vec<Duration> {
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..count {
            let before = now;
            while !pace.may_attempt(1, now) {
                now += REPLACE_PAUSE / 5;
            }
            pace.replaced(1);
            pauses.push(now - before);
        }
        pauses
    }

    #[test]
    fn replacements_that_do_not_help_become_slower_until_a_good_reply() {
        let (pace, start) = (Pace::default(), Instant::now());
        let run = pauses(&pace, start, 7);
        let expected = [0, 1, 2, 4, 8, 8, 8].map(|factor| REPLACE_PAUSE * factor);
        assert_eq!(
            (run.as_slice(), expected[6]),
            (&expected[..], REPLACE_PAUSE_MAX)
        );
        pace.is_well();
        let later = start + REPLACE_PAUSE_MAX * 9;
        assert_eq!(pauses(&pace, later, 2), expected[..2]);
    }

    #[test]
    fn a_run_is_said_once_and_another_reason_begins_its_own() {
        let pace = Pace::default();
        assert!(pace.replaced(1) && !pace.replaced(1));
        assert!(pace.replaced(2));
        pace.is_well();
        assert!(pace.replaced(2));
    }

    #[test]
    fn attempts_that_fail_keep_the_shortest_pause() {
        let (pace, start) = (Pace::default(), Instant::now());
        for attempt in 0..9 {
            assert!(pace.may_attempt(1, start + REPLACE_PAUSE * attempt));
            assert!(!pace.may_attempt(1, start + REPLACE_PAUSE * attempt));
        }
    }
}
