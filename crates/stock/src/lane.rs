//! Natural batching: the next batch leaves when the previous one has returned.
//!
//! While a batch is away, requests gather; when it is back, whatever has gathered leaves, up to a cap. An idle lane sends a lone
//! request at once and a busy one pays one Redis call for hundreds, without a timer that would have to be tuned. An idle
//! lane costs no task.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use domain::OrderId;
use tokio_util::task::TaskTracker;

/// What a lane carries, and how a batch of it is sent.
pub(crate) trait Batch: Send + Sync + 'static {
    /// One passenger. It carries its own way to be answered.
    type Request: Send + 'static;

    /// The order that the request is about. A batch holds no order twice: the scripts decide all of a batch before they write.
    fn order(request: &Self::Request) -> OrderId;

    /// Whether sending the request is pointless: nobody waits for it any more, or it is too late.
    fn is_abandoned(&self, request: &Self::Request) -> bool;

    /// Sends the batch and answers every request in it.
    fn send(&self, requests: Vec<Self::Request>) -> impl Future<Output = ()> + Send;
}

/// A queue to one place with at most one batch away.
pub(crate) struct Lane<B: Batch>(Arc<Inner<B>>);

struct Inner<B: Batch> {
    batch: B,
    batch_max: usize,
    tasks: TaskTracker,
    queue: Mutex<Queue<B::Request>>,
}

struct Queue<R> {
    waiting: VecDeque<R>,
    /// A task is sending; it will see what is added.
    busy: bool,
}

impl<B: Batch> Lane<B> {
    pub(crate) fn new(batch: B, batch_max: usize, tasks: TaskTracker) -> Self {
        let queue = Mutex::new(Queue {
            waiting: VecDeque::new(),
            busy: false,
        });
        Self(Arc::new(Inner {
            batch,
            batch_max,
            tasks,
            queue,
        }))
    }

    /// Puts the request into the next batch.
    pub(crate) fn push(&self, request: B::Request) {
        let mut queue = self.0.queue();
        queue.waiting.push_back(request);
        if !queue.busy {
            queue.busy = true;
            drop(queue);
            let inner = Arc::clone(&self.0);
            self.0.tasks.spawn(async move { inner.drain().await });
        }
    }
}

impl<B: Batch> Inner<B> {
    fn queue(&self) -> MutexGuard<'_, Queue<B::Request>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn drain(&self) {
        let _idle = IdleAfterPanic(self);
        while let Some(requests) = self.next_batch() {
            self.batch.send(requests).await;
        }
    }

    fn next_batch(&self) -> Option<Vec<B::Request>> {
        let mut queue = self.queue();
        let mut requests = Vec::with_capacity(queue.waiting.len().min(self.batch_max));
        let mut orders = HashSet::with_capacity(requests.capacity());
        let mut repeats = VecDeque::new();
        while requests.len() < self.batch_max {
            let Some(request) = queue.waiting.pop_front() else {
                break;
            };
            if self.batch.is_abandoned(&request) {
                continue;
            }
            if orders.insert(B::order(&request)) {
                requests.push(request);
            } else {
                repeats.push_back(request);
            }
        }
        repeats.append(&mut queue.waiting);
        queue.waiting = repeats;
        queue.busy = !requests.is_empty();
        queue.busy.then_some(requests)
    }
}

/// A batch that panicked must not leave its lane busy for good. What was in it hears nothing and asks again.
struct IdleAfterPanic<'a, B: Batch>(&'a Inner<B>);

impl<B: Batch> Drop for IdleAfterPanic<'_, B> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue().busy = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::OrderId;
    use tokio::sync::{mpsc, oneshot};
    use tokio_util::task::TaskTracker;

    use super::{Batch, Lane};

    /// Notes every batch and waits until it is let go.
    struct Recorder {
        batches: mpsc::UnboundedSender<(Vec<u8>, oneshot::Sender<()>)>,
    }

    impl Batch for Recorder {
        type Request = u8;

        fn order(request: &u8) -> OrderId {
            OrderId::from_bytes([request % 10; 16])
        }

        fn is_abandoned(&self, request: &u8) -> bool {
            *request == 99
        }

        async fn send(&self, requests: Vec<u8>) {
            let (go, gone) = oneshot::channel();
            self.batches.send((requests, go)).unwrap();
            gone.await.unwrap();
        }
    }

    #[tokio::test]
    async fn the_next_batch_leaves_when_the_previous_one_has_returned() {
        let (batches, mut seen) = mpsc::unbounded_channel();
        let tasks = TaskTracker::new();
        let lane = Lane::new(Recorder { batches }, 4, tasks.clone());
        lane.push(1);
        let (first, go) = seen.recv().await.unwrap();
        assert_eq!(first, [1], "an idle lane does not wait for company");
        for request in [2, 3, 12, 99, 4, 5, 6] {
            lane.push(request);
        }
        assert!(seen.try_recv().is_err(), "one batch is away");
        go.send(()).unwrap();
        let (second, go) = seen.recv().await.unwrap();
        assert_eq!(
            second,
            [2, 3, 4, 5],
            "capped, without the repeated order and the abandoned request"
        );
        go.send(()).unwrap();
        let (third, go) = seen.recv().await.unwrap();
        assert_eq!(third, [12, 6], "the repeat goes first in the next batch");
        go.send(()).unwrap();
        tasks.close();
        tasks.wait().await;
    }

    /// Panics at the first batch.
    struct Unlucky(mpsc::UnboundedSender<Vec<u8>>);

    impl Batch for Unlucky {
        type Request = u8;

        fn order(request: &u8) -> OrderId {
            OrderId::from_bytes([*request; 16])
        }

        fn is_abandoned(&self, _: &u8) -> bool {
            false
        }

        async fn send(&self, requests: Vec<u8>) {
            assert!(requests != [1], "this panic is part of the test");
            self.0.send(requests).unwrap();
        }
    }

    #[tokio::test]
    async fn a_lane_goes_on_after_a_batch_that_panicked() {
        let (sender, mut seen) = mpsc::unbounded_channel();
        let tasks = TaskTracker::new();
        let lane = Lane::new(Unlucky(sender), 4, tasks.clone());
        lane.push(1);
        tasks.close();
        tasks.wait().await;
        lane.push(2);
        assert_eq!(seen.recv().await.unwrap(), [2]);
    }
}
