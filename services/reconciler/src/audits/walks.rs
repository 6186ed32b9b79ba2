//! The walks of audits over the orders of items: two at a time, in pieces with pauses between them.
//!
//! A walk of twenty million orders takes a minute at the bounded rate. Items with fewer orders are
//! walked beside it.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use domain::ItemId;
use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use ledger::{Pace, WalkProgress};

use super::audit_paced;
use crate::{Reconciler, ReconcilerError};

/// A pause is so many times as long as the work before it: however large the sales are, each walk
/// takes a fifth of the time of one connection.
const PAUSE_FACTOR: u32 = 4;

/// Longest pause between two pieces. PostgreSQL ends a snapshot that has waited for ten seconds,
/// and keeps old rows for it as long as it is open.
const PIECE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Walks at a time. The ledger has more connections for walks: for an archive, and for those that are
/// asked for.
const WALKS_MAX: usize = 2;

type Walk<'r> = BoxFuture<'r, (ItemId, Result<(), ReconcilerError>)>;

/// The walks that are under way, and the items that wait for one.
pub(super) struct Walks<'r> {
    reconciler: &'r Reconciler,
    waiting: VecDeque<ItemId>,
    walked: HashSet<ItemId>,
    walks: FuturesUnordered<Walk<'r>>,
}

impl<'r> Walks<'r> {
    pub fn new(reconciler: &'r Reconciler) -> Self {
        Self {
            reconciler,
            waiting: VecDeque::new(),
            walked: HashSet::new(),
            walks: FuturesUnordered::new(),
        }
    }

    /// Looks which audits are due, once those that were due before have begun.
    pub fn look(&mut self) {
        if self.waiting.is_empty() {
            let settings = &self.reconciler.settings;
            let (now, time) = (Instant::now(), (settings.clock)());
            let due = self.reconciler.audits.due(
                now,
                time,
                settings.audit_interval,
                settings.full_audit_interval,
            );
            self.waiting.extend(due);
        }
        self.begin();
    }

    fn begin(&mut self) {
        while self.walks.len() < WALKS_MAX
            && let Some(id) = self.waiting.pop_front()
        {
            if self.walked.insert(id.clone()) {
                let reconciler = self.reconciler;
                self.walks.push(Box::pin(async move {
                    let audited = audit_paced(reconciler, &id).await;
                    (id, audited)
                }));
            }
        }
    }

    /// The result of the next walk that ends before `until`, after which another one begins; or
    /// that none has failed. `None`: the service stops. Then the walks that are under way end with
    /// this.
    pub async fn next_until(&mut self, until: Instant) -> Option<Result<(), ReconcilerError>> {
        let pause = until.saturating_duration_since(Instant::now());
        let ended = tokio::select! {
            is_stop = self.reconciler.pause(pause) => return (!is_stop).then_some(Ok(())),
            Some(ended) = self.walks.next() => ended,
        };
        let (id, audited) = ended;
        self.walked.remove(&id);
        self.begin();
        Some(audited)
    }
}

/// Pauses between the pieces of a walk, and shows how far it is.
pub(crate) struct BoundedPace<'r> {
    reconciler: &'r Reconciler,
    id: &'r ItemId,
    started: Instant,
    paused: Mutex<Duration>,
}

impl<'r> BoundedPace<'r> {
    pub fn new(reconciler: &'r Reconciler, id: &'r ItemId) -> Self {
        Self {
            reconciler,
            id,
            started: Instant::now(),
            paused: Mutex::default(),
        }
    }

    fn paused(&self) -> MutexGuard<'_, Duration> {
        // No code panics while it holds the lock.
        self.paused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time that was no pause.
    pub fn worked(&self) -> Duration {
        let paused = *self.paused();
        self.started.elapsed().saturating_sub(paused)
    }

    /// The rest of the pauses, which last so long together at least.
    pub async fn rest(&self, shortest: Duration) {
        let (worked, paused) = (self.worked(), *self.paused());
        let rest = rest_of_pauses(worked, paused, shortest);
        self.reconciler.pause(rest).await;
    }
}

fn rest_of_pauses(worked: Duration, paused: Duration, shortest: Duration) -> Duration {
    let pauses = (worked * PAUSE_FACTOR).max(shortest);
    pauses.saturating_sub(paused)
}

#[async_trait]
impl Pace for BoundedPace<'_> {
    async fn piece_read(&self, progress: WalkProgress) {
        self.reconciler.audits.walks.show(self.id, progress.share);
        if progress.share < 1.0 {
            let started = Instant::now();
            let pause = progress.took * PAUSE_FACTOR;
            self.reconciler.pause(pause.min(PIECE_PAUSE_MAX)).await;
            *self.paused() += started.elapsed();
        }
    }

    fn piece_orders(&self) -> u64 {
        self.reconciler.settings.audit_piece
    }
}

impl Drop for BoundedPace<'_> {
    fn drop(&mut self) {
        self.reconciler.audits.walks.show(self.id, 1.0);
    }
}

/// How far the walks are that are under way, as a gauge.
#[derive(Default)]
pub(super) struct Progress(Mutex<HashMap<ItemId, f64>>);

impl Progress {
    /// Shows the walk that is least far.
    fn show(&self, id: &ItemId, share: f64) {
        let mut walks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if share < 1.0 {
            walks.insert(id.clone(), share);
        } else {
            walks.remove(id);
        }
        let least = walks.values().copied().fold(1.0, f64::min);
        metrics::gauge!("stockade_audit_progress").set(least);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::rest_of_pauses;

    #[test]
    fn pauses_are_as_long_as_the_work_asks_for_and_no_shorter_than_their_bound() {
        let ms = Duration::from_millis;
        for (worked, paused, rest) in [(1, 0, 200), (1, 150, 50), (100, 0, 400), (100, 900, 0)] {
            assert_eq!(rest_of_pauses(ms(worked), ms(paused), ms(200)), ms(rest));
        }
    }
}
