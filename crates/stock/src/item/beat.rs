//! When units come back to an item that has none: many at the same moment, instead of one by one.
//!
//! A unit that comes back has waiting orders try for it, and drops the sold-out cache, which costs
//! snapshots of all segments. A client that orders and cancels all the time could have this done as
//! often as requests are answered. So a process returns units at once, and those that follow within an
//! interval wait for its end together: orders, recorders and snapshots then meet all of them.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The shortest time between two beats.
const INTERVAL: Duration = Duration::from_millis(100);

/// The latest beat, which may be to come.
#[derive(Default)]
pub(super) struct Beat(Mutex<Option<Instant>>);

impl Beat {
    /// The beat of one who comes at `now`: that moment, or the next beat if the last one was within
    /// the interval.
    pub(super) fn of(&self, now: Instant) -> Instant {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let beat = match *latest {
            Some(to_come) if to_come > now => to_come,
            Some(last) => now.max(last + INTERVAL),
            None => now,
        };
        *latest = Some(beat);
        beat
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Beat, INTERVAL};

    #[test]
    fn one_is_at_once_and_those_that_follow_wait_together() {
        let (beat, begin) = (Beat::default(), Instant::now());
        let after = |ms| begin + Duration::from_millis(ms);
        assert_eq!(beat.of(begin), begin);
        for ms in [0, 1, 99] {
            assert_eq!(beat.of(after(ms)), begin + INTERVAL, "{ms}");
        }
        for ms in [100, 110] {
            assert_eq!(beat.of(after(ms)), begin + INTERVAL * 2, "{ms}");
        }
        assert_eq!(
            beat.of(after(400)),
            after(400),
            "there was none for a while"
        );
        assert_eq!(beat.of(after(401)), after(400) + INTERVAL);
    }
}
