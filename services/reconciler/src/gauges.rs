//! Gauges of what the reconciler sees: the units of each item, how far the ledger is behind, and
//! the memory of the Redis servers.
//!
//! The snapshots of the reconcile loop have all of it except the memory. The age of the oldest
//! entry is computed once a second by a task of its own: a loop that waits for a ledger that does
//! not answer would leave the gauge where it was, when it matters most.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use audit::Snapshot;
use domain::ItemId;
use jiff::Timestamp;
use stock::{ServerMemory, StockError};

use crate::{Reconciler, item_gauges::ItemGauge};

/// Interval between two updates of the gauges.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between two decisions which items are shown by name.
const ITEMS_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between two reads of the memory of the Redis servers.
const MEMORY_INTERVAL: Duration = Duration::from_secs(5);
/// Limit for one read of the memory. The next one follows anyway.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(5);

/// The outbox entries that the ledger lacks, by item, as of each item's last snapshot.
#[derive(Default)]
pub(crate) struct Backlog(Mutex<HashMap<ItemId, Behind>>);

/// The outbox entries of one item that the ledger lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Behind {
    entries: usize,
    /// When the oldest was written, by Redis's clock.
    oldest_ms: Option<u64>,
}

impl Backlog {
    fn lock(&self) -> MutexGuard<'_, HashMap<ItemId, Behind>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, id: &ItemId, snapshots: &[Snapshot]) {
        let mut items = self.lock();
        match Behind::of(snapshots) {
            Behind { entries: 0, .. } => drop(items.remove(id)),
            behind => drop(items.insert(id.clone(), behind)),
        }
    }

    /// All entries, and the age of the oldest.
    fn total(&self, now: Timestamp) -> (usize, Duration) {
        let items = self.lock();
        let entries = items.values().map(|behind| behind.entries).sum();
        let oldest_ms = items.values().filter_map(|behind| behind.oldest_ms).min();
        (entries, oldest_ms.map_or(Duration::ZERO, |ms| age(ms, now)))
    }
}

impl Behind {
    fn of(snapshots: &[Snapshot]) -> Self {
        let mut behind = Self::default();
        for segment in snapshots {
            let oldest = behind.oldest_ms.into_iter();
            behind.oldest_ms = oldest.chain(segment.unrecorded.oldest_ms).min();
            behind.entries += segment.unrecorded.entries;
        }
        behind
    }
}

fn age(ms: u64, now: Timestamp) -> Duration {
    let now_ms = u64::try_from(now.as_millisecond()).unwrap_or(0);
    Duration::from_millis(now_ms.saturating_sub(ms))
}

/// Updates the gauges until the reconciler stops.
pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let mut memory_read: Option<Instant> = None;
    let mut items_shown: Option<Instant> = None;
    loop {
        show_backlog(&reconciler);
        if items_shown.is_none_or(|shown| shown.elapsed() >= ITEMS_INTERVAL) {
            items_shown = Some(Instant::now());
            reconciler.audits.refresh_gauges();
        }
        if memory_read.is_none_or(|read| read.elapsed() >= MEMORY_INTERVAL) {
            memory_read = Some(Instant::now());
            show_memory(&reconciler).await;
        }
        if reconciler.pause(UPDATE_INTERVAL).await {
            return;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn show_backlog(reconciler: &Reconciler) {
    let (entries, age) = reconciler.backlog.total((reconciler.settings.clock)());
    metrics::gauge!("stockade_outbox_entries").set(entries as f64);
    metrics::gauge!("stockade_recorder_lag_seconds").set(age.as_secs_f64());
}

async fn show_memory(reconciler: &Reconciler) {
    let reading = tokio::time::timeout(MEMORY_TIMEOUT, reconciler.stock.memory());
    let timed_out = |_| Err(StockError::OutcomeUnknown(MEMORY_TIMEOUT));
    match reading.await.unwrap_or_else(timed_out) {
        Ok(servers) => servers.into_iter().for_each(show_server),
        Err(error) => tracing::debug!(%error, "could not read the memory of Redis"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn show_server(memory: ServerMemory) {
    let ServerMemory {
        server,
        used_bytes,
        max_bytes,
    } = memory;
    metrics::gauge!("stockade_redis_memory_used_bytes", "server" => server.clone())
        .set(used_bytes as f64);
    metrics::gauge!("stockade_redis_memory_max_bytes", "server" => server).set(max_bytes as f64);
}

/// Shows the units of an item, and notes its outbox entries, as of these snapshots.
pub(crate) fn show_item(reconciler: &Reconciler, id: &ItemId, snapshots: &[Snapshot]) {
    reconciler.backlog.note(id, snapshots);
    let sum = |units: fn(&Snapshot) -> u64| snapshots.iter().map(units).sum();
    let units = [
        (ItemGauge::Allocated, sum(|snapshot| snapshot.row.allocated)),
        (ItemGauge::Available, sum(available)),
        (ItemGauge::InFlight, sum(Snapshot::in_flight)),
        (ItemGauge::Held, sum(|snapshot| snapshot.row.held)),
        (ItemGauge::Confirmed, sum(|snapshot| snapshot.row.confirmed)),
        (ItemGauge::Returning, sum(|snapshot| snapshot.row.returning)),
    ];
    reconciler.audits.gauges.set(id, units);
}

/// Free units in Redis: none where the segment is missing.
fn available(snapshot: &Snapshot) -> u64 {
    let inspection = snapshot.inspection.as_ref();
    inspection.map_or(0, |inspection| inspection.available)
}

/// Shows the gauges and counters without labels before their first event: an alert needs the 0.
pub(crate) fn show_initial() {
    metrics::gauge!("stockade_pending_returns").set(0.0);
    metrics::gauge!("stockade_audit_progress").set(1.0);
    metrics::counter!(crate::ERRORS).increment(0);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::ItemId;
    use jiff::Timestamp;

    use super::{Backlog, Behind};

    #[test]
    fn the_lag_is_the_age_of_the_oldest_entry_of_all_items() {
        let backlog = Backlog::default();
        let now = Timestamp::from_millisecond(1_700_000_010_000).unwrap();
        assert_eq!(backlog.total(now), (0, Duration::ZERO));
        for (item, entries, oldest_ms) in [
            ("vase", 2, 1_700_000_007_000),
            ("bowl", 3, 1_700_000_004_000),
        ] {
            let behind = Behind {
                entries,
                oldest_ms: Some(oldest_ms),
            };
            backlog.lock().insert(ItemId::new(item).unwrap(), behind);
        }
        assert_eq!(backlog.total(now), (5, Duration::from_secs(6)));
        backlog.note(&ItemId::new("bowl").unwrap(), &[]);
        assert_eq!(backlog.total(now), (2, Duration::from_secs(3)));
        let earlier = Timestamp::from_millisecond(1_700_000_000_000).unwrap();
        assert_eq!(
            backlog.total(earlier).1,
            Duration::ZERO,
            "Redis's clock is ahead"
        );
    }
}
