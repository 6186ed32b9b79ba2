//! Request coalescing: the next batch leaves when the previous one has returned.
//!
//! While a batch is in flight, requests queue; when it returns, the queue leaves as the next batch,
//! up to a maximum. An idle batcher sends a lone request immediately, and a busy one pays one Redis
//! call for hundreds of requests, without a timer to tune. An idle batcher costs no task.
//!
//! It has its own queue and not `mpsc::Receiver::recv_many`: a batch holds no order twice, and a
//! repeat must go to the front of the next batch.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use domain::OrderId;

use crate::runtime::HomeRuntime;

/// What a batcher carries, and how a batch of it is sent.
pub(crate) trait Batch: Send + Sync + 'static {
    /// One request. It carries the channel of its reply.
    type Request: Send + 'static;

    /// The order of the request. A batch holds no order twice: the scripts decide all of a batch
    /// before they write.
    fn order(request: &Self::Request) -> OrderId;

    /// Whether sending the request is pointless: its caller is gone, or its deadline has passed.
    fn is_abandoned(&self, request: &Self::Request) -> bool;

    /// Sends the batch and replies to every request in it.
    fn send(&self, requests: Vec<Self::Request>) -> impl Future<Output = ()> + Send;
}

/// A queue to one destination with at most one batch in flight.
pub(crate) struct Batcher<B: Batch>(Arc<Inner<B>>);

struct Inner<B: Batch> {
    batch: B,
    batch_max: usize,
    runtime: HomeRuntime,
    queue: Mutex<Queue<B::Request>>,
}

struct Queue<R> {
    waiting: VecDeque<R>,
    /// A task is sending; it will find new requests.
    busy: bool,
}

impl<B: Batch> Batcher<B> {
    pub(crate) fn new(batch: B, batch_max: usize, runtime: HomeRuntime) -> Self {
        let queue = Mutex::new(Queue {
            waiting: VecDeque::new(),
            busy: false,
        });
        Self(Arc::new(Inner {
            batch,
            batch_max,
            runtime,
            queue,
        }))
    }

    /// Queues the request for the next batch.
    pub(crate) fn push(&self, request: B::Request) {
        let mut queue = self.0.queue();
        queue.waiting.push_back(request);
        if !queue.busy {
            queue.busy = true;
            drop(queue);
            let inner = Arc::clone(&self.0);
            // Not on the caller's runtime, where the batch would take turns with hundreds of
            // connections.
            self.0.runtime.spawn(async move { inner.drain().await });
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
        let mut orders =
            HashSet::with_capacity_and_hasher(requests.capacity(), ahash::RandomState::new());
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

/// Frees the batcher after a batch that panicked. The callers in it get no reply and retry.
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

    use super::{Batch, Batcher, HomeRuntime};

    /// Reports every batch and blocks until the test lets it go.
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
        let runtime = HomeRuntime::current();
        let batcher = Batcher::new(Recorder { batches }, 4, runtime.clone());
        batcher.push(1);
        let (first, go) = seen.recv().await.unwrap();
        assert_eq!(
            first,
            [1],
            "an idle batcher sends a lone request immediately"
        );
        for request in [2, 3, 12, 99, 4, 5, 6] {
            batcher.push(request);
        }
        assert!(seen.try_recv().is_err(), "one batch is in flight");
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
        runtime.finish().await;
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
    async fn a_batcher_continues_after_a_batch_that_panicked() {
        let (sender, mut seen) = mpsc::unbounded_channel();
        let runtime = HomeRuntime::current();
        let batcher = Batcher::new(Unlucky(sender), 4, runtime.clone());
        batcher.push(1);
        runtime.finish().await;
        batcher.push(2);
        assert_eq!(seen.recv().await.unwrap(), [2]);
    }
}
