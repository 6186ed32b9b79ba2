//! Archives what is due, one item after the other, in a task of its own: the final audit reads all
//! orders of an item, in pieces with pauses. No repair or transfer waits for it, not even one of the
//! item: its lock is taken afterwards, and what has changed meanwhile stands against the archive.
//!
//! The reconcile loop knows what is due, and notes it here.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use audit::ReadOrders;
use domain::{ItemId, ItemState};
use ledger::LiveItem;
use supervision::ErrorLatch;
use tokio::sync::Notify;

use crate::{
    COMMAND_RETRY_PAUSE, ERRORS, Reconciler, ReconcilerError, anomaly::PendingWork, archive,
    audits::BoundedPace, item_lock,
};

/// How long another attempt follows at once while another process has the item's lock: a repair soon
/// ends, and the orders need not be read again.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// Shortest interval between two attempts to archive an item.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// An attempt may read all orders of the item, and what stands against the archive may stand for
/// days. So the next one begins after so many times the time that the last one took, most of which
/// were pauses.
const REPEAT_FACTOR: u32 = 4;
/// While the same stands against it, the shortest interval doubles so many times.
const DOUBLINGS_MAX: u32 = 3;

/// Within so many items noted one after the other, each process has an order of its own.
const BATCH: u64 = 64;

/// An item that is to be archived, or whose keys are to be removed.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    pub item: LiveItem,
    /// Who has it archived.
    pub actor: String,
}

/// What waits for its archive, and what became of earlier attempts.
#[derive(Default)]
pub(crate) struct Archives {
    state: Mutex<State>,
    noted: Notify,
}

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    /// How many have waited so far.
    noted: u64,
    attempts: HashMap<ItemId, Attempts>,
    /// Another order of the items of a batch in each process: two reconcilers seldom read the orders
    /// of the same one.
    order: RandomState,
}

/// What waits for its turn.
struct Waiting {
    ending: Ending,
    /// Those that were noted about as early have the same.
    batch: u64,
    is_urgent: bool,
}

/// Why an item comes before others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    #[default]
    None,
    /// An admin waits for its archive.
    AskedFor,
    /// It is archived. To remove its keys takes no time.
    HasKeys,
}

impl Urgency {
    fn of(item: &LiveItem) -> Self {
        match item.config.state {
            ItemState::Archived => Self::HasKeys,
            _ if item.archive_by.is_some() => Self::AskedFor,
            _ => Self::None,
        }
    }
}

impl State {
    /// What is urgent comes first, once. Otherwise what was noted first comes first, so that items that
    /// cannot be archived, and are noted again and again, keep no other from its archive.
    fn add(&mut self, ending: Ending) {
        let attempts = self.attempts.entry(ending.item.id.clone()).or_default();
        if std::mem::replace(&mut attempts.is_under_way, true) {
            return;
        }
        let urgency = Urgency::of(&ending.item);
        let before = std::mem::replace(&mut attempts.urgency, urgency);
        self.waiting.push(Waiting {
            ending,
            batch: self.noted / BATCH,
            is_urgent: urgency > before,
        });
        self.noted += 1;
    }

    fn next(&mut self) -> Option<Ending> {
        let rank = |waiting: &Waiting| {
            let within_batch = self.order.hash_one(&waiting.ending.item.id);
            (!waiting.is_urgent, waiting.batch, within_batch)
        };
        let waiting = self.waiting.iter().enumerate();
        let next = waiting.min_by_key(|(_, waiting)| rank(waiting));
        let place = next.map(|(place, _)| place)?;
        Some(self.waiting.swap_remove(place).ending)
    }
}

/// The attempts to archive an item.
struct Attempts {
    /// Whether one waits, or is under way.
    is_under_way: bool,
    /// Its urgency when it was last noted.
    urgency: Urgency,
    /// When the last one has ended.
    ended: Option<Instant>,
    took: Duration,
    /// What stood against the archive.
    reasons: Vec<String>,
    /// Attempts before the last one that had the same reasons.
    repeats: u32,
    error_latch: ErrorLatch,
}

impl Default for Attempts {
    fn default() -> Self {
        Self {
            is_under_way: false,
            urgency: Urgency::None,
            ended: None,
            took: Duration::ZERO,
            reasons: Vec::new(),
            repeats: 0,
            error_latch: ErrorLatch::new("archiving an item", ERRORS),
        }
    }
}

impl Attempts {
    fn is_due(&self, now: Instant) -> bool {
        let shortest = RETRY_INTERVAL * 2_u32.pow(self.repeats.min(DOUBLINGS_MAX));
        let interval = shortest.max(self.took * REPEAT_FACTOR);
        let has_paused = self
            .ended
            .is_none_or(|ended| now.saturating_duration_since(ended) >= interval);
        has_paused && !self.is_under_way
    }
}

impl Archives {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the item may be noted: none of its attempts waits, is under way, or has just ended.
    pub(crate) fn is_due(&self, id: &ItemId, now: Instant) -> bool {
        let state = self.state();
        let attempts = state.attempts.get(id);
        attempts.is_none_or(|attempts| attempts.is_due(now))
    }

    /// Has the item archived in its turn.
    pub(crate) fn note(&self, ending: Ending) {
        self.state().add(ending);
        self.noted.notify_one();
    }

    /// Forgets the attempts of an item that is not live any more.
    pub(crate) fn forget(&self, id: &ItemId) {
        self.state().attempts.remove(id);
    }

    async fn next(&self) -> Ending {
        loop {
            let next = self.state().next();
            match next {
                Some(ending) => return ending,
                None => self.noted.notified().await,
            }
        }
    }

    /// Notes that an attempt has ended, and logs once what stood against the archive, or why it
    /// failed.
    fn ended(
        &self,
        id: &ItemId,
        began: Instant,
        attempt: Result<Option<Vec<String>>, ReconcilerError>,
    ) {
        let mut state = self.state();
        // It may have been archived, and forgotten.
        let Some(attempts) = state.attempts.get_mut(id) else {
            return;
        };
        attempts.is_under_way = false;
        attempts.ended = Some(Instant::now());
        attempts.took = began.elapsed();
        match attempt {
            Ok(None) => {}
            Ok(Some(reasons)) => {
                attempts.error_latch.recovered();
                let is_repeat = !reasons.is_empty() && reasons == attempts.reasons;
                attempts.repeats = if is_repeat {
                    attempts.repeats.saturating_add(1)
                } else {
                    0
                };
                if !reasons.is_empty() && !is_repeat {
                    tracing::warn!(item = %id, reasons = reasons.join("; "), "could not archive the item yet, retrying");
                }
                attempts.reasons = reasons;
            }
            Err(error) => attempts.error_latch.failed(&error),
        }
    }

    /// Begins anew after a panic: what was under way is not any more.
    fn restart(&self) {
        let mut state = self.state();
        let State {
            waiting, attempts, ..
        } = &mut *state;
        for (id, attempts) in attempts {
            attempts.is_under_way = waiting.iter().any(|waiting| waiting.ending.item.id == *id);
        }
    }
}

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    reconciler.archives.restart();
    loop {
        let ending = tokio::select! {
            () = reconciler.stop.cancelled() => return,
            ending = reconciler.archives.next() => ending,
        };
        let began = Instant::now();
        let attempt = end(&reconciler, &ending).await;
        if reconciler.stop.is_cancelled() {
            return;
        }
        let id = &ending.item.id;
        reconciler.archives.ended(id, began, attempt);
    }
}

/// Archives the item, or removes the keys of one that is archived. Returns what stands against it.
/// `None`: it is not to be archived now, or another process has its lock.
async fn end(
    reconciler: &Arc<Reconciler>,
    Ending { item, actor }: &Ending,
) -> Result<Option<Vec<String>>, ReconcilerError> {
    if !is_due(reconciler, item).await? {
        return Ok(None);
    }
    let (stock, ledger) = (&reconciler.stock, &*reconciler.ledger);
    match audit::against_archive(stock, ledger, &item.id).await? {
        None => return Ok(None),
        Some(reasons) if !reasons.is_empty() => return Ok(Some(reasons)),
        Some(_) => {}
    }
    // Without the lock: repairs of the item do not wait, if it is opened again.
    let pace = BoundedPace::new(reconciler, &item.id);
    let now = (reconciler.settings.clock)();
    let orders = tokio::select! {
        orders = audit::read_orders(ledger, &item.id, now, &pace) => orders?,
        () = reconciler.stop.cancelled() => return Ok(None),
    };
    let archived = under_lock(reconciler, &item.id, actor, orders).await;
    pace.rest(Duration::ZERO).await;
    archived
}

async fn under_lock(
    reconciler: &Arc<Reconciler>,
    id: &ItemId,
    actor: &str,
    orders: Option<ReadOrders>,
) -> Result<Option<Vec<String>>, ReconcilerError> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        let work = PendingWork::archive(actor, orders.clone());
        let reasons = item_lock::work_under_lock(reconciler, id, work).await?;
        let is_last = reasons.is_some() || Instant::now() > until;
        if is_last || reconciler.pause(COMMAND_RETRY_PAUSE).await {
            return Ok(reasons);
        }
    }
}

/// Whether the item is still what it was when it was noted, and to be archived.
async fn is_due(reconciler: &Reconciler, noted: &LiveItem) -> Result<bool, ReconcilerError> {
    let item = reconciler.ledger.item(&noted.id).await?;
    if item.is_none_or(|item| item.epoch != noted.config.epoch) {
        return Ok(false);
    }
    Ok(noted.config.state == ItemState::Archived || archive::is_due(reconciler, noted).await?)
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        time::{Duration, Instant},
    };

    use domain::{ItemId, ItemState, SegmentConfig, Window};
    use ledger::LiveItem;

    use super::{Attempts, BATCH, Ending, State};

    fn ending(id: &str, asked_for_by: Option<&str>) -> Ending {
        let config = SegmentConfig {
            state: ItemState::Closed,
            limit_per_buyer: None,
            window: Window::default(),
            price: None,
            epoch: 1,
        };
        let item = LiveItem {
            id: ItemId::new(id).unwrap(),
            config,
            closed_at: None,
            archive_by: asked_for_by.map(str::to_owned),
            next_wave: None,
        };
        Ending {
            item,
            actor: "reconciler".into(),
        }
    }

    /// The next item, whose attempt fails.
    fn fail_next(state: &mut State) -> Ending {
        let next = state.next().unwrap();
        state.attempts.get_mut(&next.item.id).unwrap().is_under_way = false;
        next
    }

    #[test]
    fn items_that_cannot_be_archived_keep_no_other_from_its_archive() {
        let (mut state, mut ended) = (State::default(), HashSet::new());
        for number in 0..20 {
            state.add(ending(&format!("other-{number}"), None));
        }
        for number in 0..5 {
            state.add(ending(&format!("stuck-{number}"), Some("ann")));
        }
        for _ in 0..BATCH + 25 {
            let next = fail_next(&mut state);
            ended.insert(next.item.id.clone());
            if next.item.archive_by.is_some() {
                state.add(next);
            }
        }
        assert_eq!(ended.len(), 25);
    }

    #[test]
    fn what_an_admin_waits_for_comes_first_once() {
        let mut state = State::default();
        for number in 0..3 * BATCH {
            state.add(ending(&format!("other-{number}"), None));
        }
        state.add(ending("asked-for", Some("ann")));
        let next = fail_next(&mut state);
        assert_eq!(next.item.id.as_str(), "asked-for");
        state.add(next);
        let next = fail_next(&mut state);
        assert_ne!(next.item.id.as_str(), "asked-for");
    }

    #[test]
    fn an_archive_that_took_long_is_tried_again_later() {
        let now = Instant::now();
        for (took_ms, seconds) in [(0, 2), (50, 2), (5000, 20)] {
            let mut attempts = Attempts {
                ended: Some(now),
                took: Duration::from_millis(took_ms),
                ..Attempts::default()
            };
            let interval = Duration::from_secs(seconds);
            assert!(!attempts.is_due(now + interval - Duration::from_millis(1)));
            assert!(attempts.is_due(now + interval), "{took_ms} ms");
            attempts.is_under_way = true;
            assert!(!attempts.is_due(now + interval), "it has not ended");
        }
        assert!(Attempts::default().is_due(now));
        let again_and_again = Attempts {
            ended: Some(now),
            repeats: u32::MAX,
            ..Attempts::default()
        };
        let longest = Duration::from_secs(16);
        assert!(!again_and_again.is_due(now + longest - Duration::from_millis(1)));
        assert!(again_and_again.is_due(now + longest));
    }
}
