//! Which segments have entries to record, and who records them right now in this process.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use domain::SegmentKey;
use tokio::sync::Notify;

/// A set of segments with work. A segment that comes again while it is being worked on is worked on once more afterwards.
#[derive(Default)]
pub(crate) struct Work {
    state: Mutex<State>,
    changed: Notify,
    /// Messages may have been lost: somebody should look everywhere.
    pub sweep: Notify,
}

#[derive(Default)]
struct State {
    waiting: BTreeSet<SegmentKey>,
    taken: HashSet<SegmentKey>,
    closed: bool,
}

impl Work {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, segments: impl IntoIterator<Item = SegmentKey>) {
        self.state().waiting.extend(segments);
        self.changed.notify_one();
    }

    pub(crate) fn sweep_now(&self) {
        self.sweep.notify_one();
    }

    /// No more is taken in; what is there is still worked off.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    /// Some segments with work that nobody here works on; waits for them. `None`: closed and nothing left.
    pub(crate) async fn take(&self, at_most: usize) -> Option<Vec<SegmentKey>> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (segments, over) = self.try_take(at_most);
            if !segments.is_empty() {
                // Another worker may find more.
                self.changed.notify_one();
                return Some(segments);
            }
            if over {
                self.changed.notify_waiters();
                return None;
            }
            changed.await;
        }
    }

    fn try_take(&self, at_most: usize) -> (Vec<SegmentKey>, bool) {
        let mut state = self.state();
        let free = state.waiting.iter().filter(|segment| !state.taken.contains(*segment));
        let segments: Vec<_> = free.take(at_most).cloned().collect();
        for segment in &segments {
            state.waiting.remove(segment);
            state.taken.insert(segment.clone());
        }
        let over = state.closed && state.waiting.is_empty() && state.taken.is_empty();
        (segments, over)
    }

    pub(crate) fn done(&self, segments: &[SegmentKey]) {
        let mut state = self.state();
        for segment in segments {
            state.taken.remove(segment);
        }
        let wake = !state.waiting.is_empty() || state.closed;
        drop(state);
        if wake {
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Work;
    use domain::SegmentKey;

    fn segments(names: &[&str]) -> Vec<SegmentKey> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[tokio::test]
    async fn a_segment_is_worked_on_by_one_at_a_time_and_again_if_it_came_again() {
        let work = Work::default();
        work.add(segments(&["a:0", "a:1", "a:0"]));
        assert_eq!(work.take(1).await.unwrap(), segments(&["a:0"]));
        work.add(segments(&["a:0"]));
        assert_eq!(work.take(9).await.unwrap(), segments(&["a:1"]), "a:0 is being worked on");
        work.done(&segments(&["a:0"]));
        assert_eq!(work.take(9).await.unwrap(), segments(&["a:0"]));
        work.close();
        work.done(&segments(&["a:0", "a:1"]));
        assert!(work.take(9).await.is_none());
    }
}
