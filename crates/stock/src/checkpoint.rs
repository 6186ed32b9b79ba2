//! Which orders wait for which outbox entry to be recorded.
//!
//! The recorder publishes which entries of an outbox the ledger has recorded, and which of their
//! orders it rejected. A message covers the entries that it names only: the one before it may have
//! been lost, and an entry that a failover lost is not recorded because later ones are. All other
//! orders keep waiting until the watchdog asks the ledger about them by id and calls
//! [`Checkpoints::resolve`]. So a lost message costs time, and no order gets `held` without one.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::{Duration, Instant},
};

use domain::{EntryId, OrderId, SegmentKey};

use crate::{
    StockError,
    outbox::RecordedEntries,
    replies::{ReplySender, together},
    request::Reply,
};

/// Messages that are kept for batches whose reply arrives after the message about them.
const RECENT_MAX: usize = 64;

/// An order that has its units and waits for the ledger.
pub(crate) struct Waiter {
    pub order: OrderId,
    pub expires_ms: i64,
    pub price: Option<u64>,
    pub sender: ReplySender,
}

impl Waiter {
    fn reply(self, rejected: bool) {
        let reply = if rejected {
            Reply::Rejected
        } else {
            Reply::Taken {
                expires_ms: self.expires_ms,
                price: self.price,
                recorded: true,
            }
        };
        self.sender.send(Ok(reply));
    }

    /// Has the caller retry, as after a lost reply.
    fn retry(self) {
        let unknown = StockError::OutcomeUnknown(Duration::ZERO);
        self.sender.send(Err(unknown));
    }
}

/// What the ledger has of an order that had its units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// The ledger has recorded it.
    Recorded,
    /// The ledger could not cover it.
    Rejected,
    /// Its entry lies before the checkpoint, and the ledger does not have it: Redis has lost it,
    /// and its units with it.
    Lost,
}

/// The waiting orders of one segment.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    batches: Vec<WaitingBatch>,
    recent: VecDeque<Arc<RecordedEntries>>,
}

struct WaitingBatch {
    entry: EntryId,
    fingerprint: i64,
    since: Instant,
    waiters: Vec<Waiter>,
}

impl WaitingBatch {
    fn reply(self, rejected: &[OrderId]) {
        for waiter in self.waiters {
            let rejected = rejected.contains(&waiter.order);
            waiter.reply(rejected);
        }
    }
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replies to the orders of `entry` when it has been recorded; immediately if it has been.
    pub(crate) fn wait(&self, entry: EntryId, fingerprint: i64, waiters: Vec<Waiter>) {
        let batch = WaitingBatch {
            entry,
            fingerprint,
            since: Instant::now(),
            waiters,
        };
        let mut waiting = self.lock();
        match waiting
            .recent
            .iter()
            .find(|recorded| recorded.has(entry, fingerprint))
            .cloned()
        {
            Some(recorded) => together(|| batch.reply(&recorded.rejected)),
            None => waiting.batches.push(batch),
        }
    }

    fn recorded(&self, recorded: RecordedEntries) {
        let recorded = Arc::new(recorded);
        let batches = self.take_recorded(&recorded);
        together(|| {
            for batch in batches {
                batch.reply(&recorded.rejected);
            }
        });
    }

    fn take_recorded(&self, recorded: &Arc<RecordedEntries>) -> Vec<WaitingBatch> {
        let mut waiting = self.lock();
        // A recorder in this process notifies directly, before its own message arrives.
        if waiting.recent.contains(recorded) {
            return Vec::new();
        }
        waiting.recent.push_back(Arc::clone(recorded));
        let surplus = waiting.recent.len().saturating_sub(RECENT_MAX);
        waiting.recent.drain(..surplus);
        waiting
            .batches
            .extract_if(.., |batch| recorded.has(batch.entry, batch.fingerprint))
            .collect()
    }

    /// Orders that have waited longer than `limit`, with their entries. Those whose callers are
    /// gone are dropped here.
    fn overdue(&self, limit: Duration) -> Vec<(EntryId, OrderId)> {
        let mut waiting = self.lock();
        let mut overdue = Vec::new();
        for batch in waiting
            .batches
            .iter_mut()
            .filter(|batch| batch.since.elapsed() > limit)
        {
            batch.waiters.retain(|waiter| !waiter.sender.is_closed());
            let orders = batch.waiters.iter().map(|waiter| waiter.order);
            overdue.extend(orders.map(|order| (batch.entry, order)));
        }
        waiting.batches.retain(|batch| !batch.waiters.is_empty());
        overdue
    }

    fn resolve(&self, resolutions: &HashMap<OrderId, Resolution>) {
        let mut waiting = self.lock();
        for batch in &mut waiting.batches {
            for waiter in batch
                .waiters
                .extract_if(.., |waiter| resolutions.contains_key(&waiter.order))
            {
                match resolutions[&waiter.order] {
                    Resolution::Recorded => waiter.reply(false),
                    Resolution::Rejected => waiter.reply(true),
                    Resolution::Lost => waiter.retry(),
                }
            }
        }
        waiting.batches.retain(|batch| !batch.waiters.is_empty());
    }
}

/// The waiters of every segment that this process has ordered from.
#[derive(Default)]
pub(crate) struct Checkpoints(RwLock<HashMap<SegmentKey, Arc<Waiters>>>);

impl Checkpoints {
    pub(crate) fn of(&self, segment: &SegmentKey) -> Arc<Waiters> {
        let mut waiters = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(waiters.entry(segment.clone()).or_default())
    }

    fn known(&self, segment: &SegmentKey) -> Option<Arc<Waiters>> {
        let waiters = self.0.read().unwrap_or_else(PoisonError::into_inner);
        waiters.get(segment).cloned()
    }

    pub(crate) fn recorded(&self, recorded: RecordedEntries) {
        if let Some(waiters) = self.known(&recorded.segment) {
            waiters.recorded(recorded);
        }
    }

    pub(crate) fn overdue(&self, limit: Duration) -> Vec<(SegmentKey, Vec<(EntryId, OrderId)>)> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let overdue = all
            .iter()
            .map(|(segment, waiters)| (segment.clone(), waiters.overdue(limit)));
        overdue.filter(|(_, orders)| !orders.is_empty()).collect()
    }

    pub(crate) fn resolve(&self, segment: &SegmentKey, resolutions: &HashMap<OrderId, Resolution>) {
        if let Some(waiters) = self.known(segment) {
            waiters.resolve(resolutions);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, time::Duration};

    use domain::{EntryId, OrderId};
    use tokio::sync::oneshot;

    use super::{ReplySender, Resolution, Waiter, Waiters};
    use crate::{outbox::RecordedEntries, request::Reply};

    const ONE: OrderId = OrderId::from_bytes([1; 16]);
    const TWO: OrderId = OrderId::from_bytes([2; 16]);

    type Receiver = oneshot::Receiver<Result<Reply, crate::StockError>>;

    fn waiter(order: OrderId) -> (Waiter, Receiver) {
        let (sender, receiver) = ReplySender::new();
        (
            Waiter {
                order,
                expires_ms: 5,
                price: None,
                sender,
            },
            receiver,
        )
    }

    fn entry(ms: u64) -> EntryId {
        EntryId { ms, seq: 0 }
    }

    /// In these tests an entry has its own time as fingerprint.
    fn recorded(entries: &[u64], rejected: &[OrderId]) -> RecordedEntries {
        let entries = entries.iter().map(|ms| (entry(*ms), *ms as i64)).collect();
        RecordedEntries {
            segment: "vase:0".parse().unwrap(),
            entries,
            rejected: rejected.to_vec(),
        }
    }

    fn is_held(reply: &mut Receiver) -> bool {
        matches!(
            reply.try_recv().unwrap(),
            Ok(Reply::Taken { recorded: true, .. })
        )
    }

    fn is_rejected(reply: &mut Receiver) -> bool {
        matches!(reply.try_recv().unwrap(), Ok(Reply::Rejected))
    }

    #[test]
    fn an_order_gets_its_reply_when_its_entry_is_recorded_and_not_before() {
        let waiters = Waiters::default();
        let ((one, mut first), (two, mut second)) = (waiter(ONE), waiter(TWO));
        waiters.wait(entry(10), 10, vec![one, two]);
        waiters.recorded(recorded(&[8, 9], &[]));
        assert!(first.try_recv().is_err());
        assert_eq!(
            waiters.overdue(Duration::ZERO),
            [(entry(10), ONE), (entry(10), TWO)]
        );
        waiters.recorded(recorded(&[10], &[TWO]));
        assert!(is_held(&mut first) && is_rejected(&mut second));
        assert!(waiters.overdue(Duration::ZERO).is_empty());
    }

    #[test]
    fn a_message_that_overtakes_the_reply_is_not_lost() {
        let waiters = Waiters::default();
        waiters.recorded(recorded(&[10], &[TWO]));
        waiters.recorded(recorded(&[11], &[]));
        let ((one, mut first), (two, mut second)) = (waiter(ONE), waiter(TWO));
        waiters.wait(entry(10), 10, vec![one, two]);
        assert!(is_held(&mut first) && is_rejected(&mut second));
    }

    #[test]
    fn a_later_message_does_not_cover_an_order_whose_own_message_was_lost() {
        let waiters = Waiters::default();
        let ((one, mut first), (two, mut second)) = (waiter(ONE), waiter(TWO));
        waiters.wait(entry(10), 10, vec![one, two]);
        // The message about the tenth, which rejects the second order, is lost.
        waiters.recorded(recorded(&[11], &[]));
        assert!(first.try_recv().is_err() && second.try_recv().is_err());
        waiters.resolve(&HashMap::from([
            (ONE, Resolution::Recorded),
            (TWO, Resolution::Rejected),
        ]));
        assert!(is_held(&mut first) && is_rejected(&mut second));
        assert!(waiters.lock().batches.is_empty());
    }

    #[test]
    fn an_entry_that_a_failover_lost_is_not_recorded_because_others_are() {
        let waiters = Waiters::default();
        let (one, mut first) = waiter(ONE);
        waiters.wait(entry(10), 10, vec![one]);
        waiters.recorded(recorded(&[9, 11], &[]));
        let another_at_its_place = RecordedEntries {
            entries: vec![(entry(10), 7)],
            ..recorded(&[], &[])
        };
        waiters.recorded(another_at_its_place);
        assert!(first.try_recv().is_err());
        waiters.resolve(&HashMap::from([(ONE, Resolution::Lost)]));
        assert!(
            first
                .try_recv()
                .unwrap()
                .is_err_and(|error| error.is_retryable()),
            "the caller retries"
        );
    }

    #[test]
    fn an_order_whose_caller_is_gone_is_dropped() {
        let waiters = Waiters::default();
        let (one, gone) = waiter(ONE);
        waiters.wait(entry(10), 10, vec![one]);
        drop(gone);
        assert!(waiters.overdue(Duration::ZERO).is_empty());
        assert!(waiters.lock().batches.is_empty());
    }
}
