//! Who waits for which outbox entry to be recorded.
//!
//! The recorder publishes how far the ledger has a segment. A message may be lost: whoever has waited long asks the ledger and calls
//! [`Waiters::recorded`] with what it says.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::{Duration, Instant},
};

use domain::{EntryId, OrderId, SegmentKey};

use crate::walk::{AnswerSender, Answered};

/// Rejections that are kept for batches whose reply comes after the message about them.
const RECENT_REJECTIONS: usize = 4096;

/// An order that has its units and waits for the ledger.
pub(crate) struct Waiter {
    pub order: OrderId,
    pub expires_ms: i64,
    pub sender: AnswerSender,
}

impl Waiter {
    fn answer(self, rejected: bool) {
        let answer = if rejected { Answered::Rejected } else { Answered::Taken { expires_ms: self.expires_ms, recorded: true } };
        // A buyer who has gone away is no error.
        let _ = self.sender.send(Ok(answer));
    }
}

/// The waiting orders of one segment.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    checkpoint: EntryId,
    batches: VecDeque<WaitingBatch>,
    rejections: VecDeque<OrderId>,
}

struct WaitingBatch {
    entry: EntryId,
    since: Instant,
    waiters: Vec<Waiter>,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the orders of `entry` when it has been recorded; at once if it has been.
    pub(crate) fn wait(&self, entry: EntryId, waiters: Vec<Waiter>) {
        let mut waiting = self.lock();
        if entry > waiting.checkpoint {
            waiting.batches.push_back(WaitingBatch { entry, since: Instant::now(), waiters });
            return;
        }
        for waiter in waiters {
            let rejected = waiting.rejections.contains(&waiter.order);
            waiter.answer(rejected);
        }
    }

    /// Takes in that the ledger has everything up to `checkpoint`, and rejected these.
    pub(crate) fn recorded(&self, checkpoint: EntryId, rejected: &[OrderId]) {
        for batch in self.take_recorded(checkpoint, rejected) {
            for waiter in batch.waiters {
                let rejected = rejected.contains(&waiter.order);
                waiter.answer(rejected);
            }
        }
    }

    fn take_recorded(&self, checkpoint: EntryId, rejected: &[OrderId]) -> Vec<WaitingBatch> {
        let mut waiting = self.lock();
        waiting.rejections.extend(rejected);
        let surplus = waiting.rejections.len().saturating_sub(RECENT_REJECTIONS);
        waiting.rejections.drain(..surplus);
        waiting.checkpoint = waiting.checkpoint.max(checkpoint);
        let checkpoint = waiting.checkpoint;
        let (done, rest) = std::mem::take(&mut waiting.batches).into_iter().partition(|batch| batch.entry <= checkpoint);
        waiting.batches = rest;
        Vec::from_iter::<VecDeque<_>>(done)
    }

    /// Orders that have waited longer than `patience`.
    fn overdue(&self, patience: Duration) -> Vec<OrderId> {
        let waiting = self.lock();
        let overdue = waiting.batches.iter().filter(|batch| batch.since.elapsed() > patience);
        overdue.flat_map(|batch| batch.waiters.iter().map(|waiter| waiter.order)).collect()
    }
}

/// The waiters of every segment that somebody ordered from.
#[derive(Default)]
pub(crate) struct Checkpoints(RwLock<HashMap<SegmentKey, Arc<Waiters>>>);

impl Checkpoints {
    pub(crate) fn of(&self, segment: &SegmentKey) -> Arc<Waiters> {
        let mut waiters = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(waiters.entry(segment.clone()).or_default())
    }

    pub(crate) fn recorded(&self, segment: &SegmentKey, checkpoint: EntryId, rejected: &[OrderId]) {
        let waiters = self.0.read().unwrap_or_else(PoisonError::into_inner).get(segment).cloned();
        if let Some(waiters) = waiters {
            waiters.recorded(checkpoint, rejected);
        }
    }

    pub(crate) fn overdue(&self, patience: Duration) -> Vec<(SegmentKey, Vec<OrderId>)> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let overdue = all.iter().map(|(segment, waiters)| (segment.clone(), waiters.overdue(patience)));
        overdue.filter(|(_, orders)| !orders.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::{EntryId, OrderId};
    use tokio::sync::oneshot;

    use super::{Waiter, Waiters};
    use crate::walk::Answered;

    const ONE: OrderId = OrderId::from_bytes([1; 16]);
    const TWO: OrderId = OrderId::from_bytes([2; 16]);

    fn waiter(order: OrderId) -> (Waiter, oneshot::Receiver<Result<Answered, crate::StockError>>) {
        let (sender, receiver) = oneshot::channel();
        (Waiter { order, expires_ms: 5, sender }, receiver)
    }

    fn entry(ms: u64) -> EntryId {
        EntryId { ms, seq: 0 }
    }

    #[test]
    fn an_order_is_answered_when_its_entry_is_recorded_and_not_before() {
        let waiters = Waiters::default();
        let ((one, mut first), (two, mut second)) = (waiter(ONE), waiter(TWO));
        waiters.wait(entry(10), vec![one, two]);
        waiters.recorded(entry(9), &[]);
        assert!(first.try_recv().is_err());
        assert_eq!(waiters.overdue(Duration::ZERO), [ONE, TWO]);
        waiters.recorded(entry(10), &[TWO]);
        assert!(matches!(first.try_recv().unwrap(), Ok(Answered::Taken { recorded: true, .. })));
        assert!(matches!(second.try_recv().unwrap(), Ok(Answered::Rejected)));
        assert!(waiters.overdue(Duration::ZERO).is_empty());
    }

    #[test]
    fn a_message_that_overtakes_the_reply_is_not_lost() {
        let waiters = Waiters::default();
        waiters.recorded(entry(10), &[TWO]);
        let ((one, mut first), (two, mut second)) = (waiter(ONE), waiter(TWO));
        waiters.wait(entry(10), vec![one, two]);
        assert!(matches!(first.try_recv().unwrap(), Ok(Answered::Taken { recorded: true, .. })));
        assert!(matches!(second.try_recv().unwrap(), Ok(Answered::Rejected)));
    }
}
