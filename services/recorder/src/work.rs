//! The queue of segments that have entries to record, and the segments that a worker of this
//! process records now.

use std::{
    collections::{HashSet, VecDeque},
    ops::Deref,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use domain::SegmentKey;
use tokio::sync::Notify;

/// How long the closed queue still accepts segments. Sales may continue without end, and other
/// recorders record them.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Segments with entries to record, in FIFO order: segments that always have more must not starve
/// the others. A segment that is added again while a worker has it is handed out once more
/// afterwards.
#[derive(Default)]
pub(crate) struct Work {
    state: Mutex<State>,
    changed: Notify,
    /// Wake-ups may have been lost: the sweep must poll every segment now.
    pub sweep: Notify,
}

#[derive(Default)]
struct State {
    queue: VecDeque<SegmentKey>,
    /// The segments in `queue`.
    waiting: HashSet<SegmentKey>,
    taken: HashSet<SegmentKey>,
    closed: Option<Instant>,
}

impl State {
    fn add(&mut self, segment: SegmentKey) {
        if self.waiting.insert(segment.clone()) {
            self.queue.push_back(segment);
        }
    }

    fn take(&mut self, at_most: usize) -> Vec<SegmentKey> {
        let mut segments = Vec::new();
        let mut passed_over = VecDeque::new();
        while segments.len() < at_most
            && let Some(segment) = self.queue.pop_front()
        {
            if self.taken.contains(&segment) {
                passed_over.push_back(segment);
            } else {
                self.waiting.remove(&segment);
                self.taken.insert(segment.clone());
                segments.push(segment);
            }
        }
        passed_over.append(&mut self.queue);
        self.queue = passed_over;
        segments
    }

    fn is_drained(&self) -> bool {
        self.closed.is_some() && self.waiting.is_empty() && self.taken.is_empty()
    }
}

/// Segments that a worker has taken. Dropping the value hands them back, also during a panic.
pub(crate) struct Taken<'a> {
    work: &'a Work,
    segments: Vec<SegmentKey>,
}

impl Deref for Taken<'_> {
    type Target = [SegmentKey];

    fn deref(&self) -> &[SegmentKey] {
        &self.segments
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.work.done(&self.segments);
    }
}

impl Work {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, segments: impl IntoIterator<Item = SegmentKey>) {
        let mut segments = segments.into_iter().peekable();
        if segments.peek().is_none() {
            return;
        }
        let mut state = self.state();
        if state
            .closed
            .is_some_and(|closed| closed.elapsed() > DRAIN_TIMEOUT)
        {
            return;
        }
        segments.for_each(|segment| state.add(segment));
        drop(state);
        self.changed.notify_one();
    }

    pub(crate) fn sweep_now(&self) {
        self.sweep.notify_one();
    }

    /// Ends the queue: workers still drain the segments that it has.
    pub(crate) fn close(&self) {
        self.state().closed.get_or_insert_with(Instant::now);
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    /// Empties the queue at shutdown, if it cannot be drained. The next recorder records these
    /// segments.
    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        state.queue.clear();
        state.waiting.clear();
    }

    /// Waits for segments that no other worker has, and takes up to `at_most` of them. `None`: the
    /// queue is closed and drained.
    pub(crate) async fn take(&self, at_most: usize) -> Option<Taken<'_>> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (segments, drained) = {
                let mut state = self.state();
                (state.take(at_most), state.is_drained())
            };
            if !segments.is_empty() {
                // Another worker may find more.
                self.changed.notify_one();
                return Some(Taken {
                    work: self,
                    segments,
                });
            }
            if drained {
                self.changed.notify_waiters();
                return None;
            }
            changed.await;
        }
    }

    fn done(&self, segments: &[SegmentKey]) {
        let mut state = self.state();
        for segment in segments {
            state.taken.remove(segment);
        }
        let wake = !state.waiting.is_empty() || state.closed.is_some();
        drop(state);
        if wake {
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::SegmentKey;

    use super::Work;

    fn segments(names: &[&str]) -> Vec<SegmentKey> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[tokio::test]
    async fn one_worker_has_a_segment_and_a_segment_added_meanwhile_is_handed_out_again() {
        let work = Work::default();
        work.add(segments(&["a:0", "a:1", "a:0"]));
        let first = work.take(1).await.unwrap();
        assert_eq!(*first, segments(&["a:0"]));
        work.add(segments(&["a:0"]));
        let second = work.take(9).await.unwrap();
        assert_eq!(*second, segments(&["a:1"]), "another worker has a:0");
        drop(first);
        let third = work.take(9).await.unwrap();
        assert_eq!(*third, segments(&["a:0"]));
        work.close();
        drop((second, third));
        assert!(work.take(9).await.is_none());
    }

    #[tokio::test]
    async fn segments_that_always_have_more_do_not_starve_the_others() {
        let work = Work::default();
        work.add(segments(&["a:0", "a:1", "z:0"]));
        for _ in 0..2 {
            let taken = work.take(2).await.unwrap();
            if taken.contains(&"z:0".parse().unwrap()) {
                return;
            }
            work.add(taken.to_vec());
        }
        panic!("z:0 was never taken");
    }

    #[tokio::test]
    async fn abandoning_the_queue_ends_the_workers() {
        let work = Work::default();
        work.add(segments(&["a:0", "a:1"]));
        work.close();
        let taken = work.take(1).await.unwrap();
        work.abandon();
        drop(taken);
        assert!(work.take(1).await.is_none());
    }

    #[tokio::test]
    async fn a_panicking_worker_hands_its_segments_back() {
        let work = std::sync::Arc::new(Work::default());
        work.add(segments(&["a:0"]));
        let worker = std::sync::Arc::clone(&work);
        let panicked = tokio::spawn(async move {
            let _taken = worker.take(1).await.unwrap();
            panic!("on purpose");
        });
        assert!(panicked.await.unwrap_err().is_panic());
        work.add(segments(&["a:0"]));
        assert_eq!(*work.take(1).await.unwrap(), segments(&["a:0"]));
    }
}
