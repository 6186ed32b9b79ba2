//! Quarantined segments: those that the recorder cannot record, and the reason.
//!
//! A failover to a lagging replica, a restart without persistence or a restored backup can replace
//! the history of a segment. Its entries then do not follow from the counters in the ledger, so the
//! recorder must not apply them. An entry that this release cannot read, or that the ledger
//! refuses, quarantines its segment too. The reconciler repairs the segment. The recorder logs each
//! change once and continues with all other segments.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use domain::{EntryId, SegmentKey};
use ledger::SegmentRow;

/// How often the sweep retries a quarantined segment that has not changed. A repair may have
/// happened that the sweep cannot see.
const QUARANTINE_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Why a segment is quarantined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StopReason {
    /// The outbox has another entry, or none, where the anchor should be.
    #[error("history has diverged: the outbox must begin with the last recorded entry, but begins with {}", found.map_or_else(|| "no entry".into(), |(id, _)| id.to_string()))]
    OtherAnchor { found: Option<(EntryId, i64)> },
    /// The anchor matches, but the entries after it do not follow from the ledger.
    #[error("history has diverged: the outbox entries do not follow from the last recorded entry")]
    OtherHistory,
    #[error("cannot decode an outbox entry: {0}")]
    Unreadable(String),
    #[error("the ledger refuses an outbox entry: {0}")]
    Refused(String),
}

/// The quarantined segments that this process has met.
#[derive(Default)]
pub(crate) struct Quarantine(Mutex<HashMap<SegmentKey, Stop>>);

struct Stop {
    checkpoint: Option<EntryId>,
    reason: StopReason,
    /// When the sweep last retried the segment, and the positions that it saw then.
    tried: Option<(Instant, Position)>,
}

/// Position of a segment as the sweep sees it: the ledger's checkpoint and the last entry in Redis.
type Position = (Option<EntryId>, Option<EntryId>);

impl Quarantine {
    fn lock(&self) -> MutexGuard<'_, HashMap<SegmentKey, Stop>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Quarantines the row's segment, and logs it if the checkpoint or the reason has changed.
    pub(crate) fn report(&self, row: &SegmentRow, reason: StopReason) {
        metrics::counter!("stockade_diverged_reads_total").increment(1);
        let mut stops = self.lock();
        if stops
            .get(&row.key)
            .is_some_and(|stop| stop.checkpoint == row.checkpoint && stop.reason == reason)
        {
            return;
        }
        tracing::error!(segment = %row.key, checkpoint = row.checkpoint.map(tracing::field::display), %reason, "segment quarantined: recording of it has stopped");
        stops.insert(
            row.key.clone(),
            Stop {
                checkpoint: row.checkpoint,
                reason,
                tried: None,
            },
        );
        count(&stops);
    }

    /// Ends the quarantine: the segment was recorded, or has no more entries.
    pub(crate) fn recovered(&self, segment: &SegmentKey) {
        let mut stops = self.lock();
        if stops.remove(segment).is_some() {
            tracing::info!(%segment, "segment recovered: recording of it has resumed");
            count(&stops);
        }
    }

    /// Whether the sweep may skip the segment: it is quarantined, and nothing has changed since the
    /// last retry.
    pub(crate) fn is_unchanged(
        &self,
        segment: &SegmentKey,
        checkpoint: Option<EntryId>,
        last: Option<EntryId>,
    ) -> bool {
        let mut stops = self.lock();
        let Some(stop) = stops.get_mut(segment) else {
            return false;
        };
        let (now, position) = (Instant::now(), (checkpoint, last));
        if stop.tried.is_some_and(|(when, before)| {
            before == position && now - when < QUARANTINE_RETRY_INTERVAL
        }) {
            return true;
        }
        stop.tried = Some((now, position));
        false
    }
}

fn count(stops: &HashMap<SegmentKey, Stop>) {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    metrics::gauge!("stockade_stopped_segments").set(stops.len() as f64);
}

#[cfg(test)]
mod tests {
    use domain::{EntryId, SegmentKey};
    use ledger::SegmentRow;

    use super::{Quarantine, StopReason};

    #[test]
    fn a_quarantined_segment_is_retried_when_its_position_or_the_stop_reason_changes() {
        let (quarantine, key) = (
            Quarantine::default(),
            "vase:0".parse::<SegmentKey>().unwrap(),
        );
        let id = |ms| Some(EntryId { ms, seq: 0 });
        assert!(
            !quarantine.is_unchanged(&key, id(1), id(2)),
            "it is not quarantined"
        );
        let row = SegmentRow {
            key: key.clone(),
            allocated: 1,
            available: 1,
            held: 0,
            confirmed: 0,
            returning: 0,
            checkpoint: id(1),
            anchor: Some(1),
            version: 1,
            fence: 0,
        };
        quarantine.report(&row, StopReason::OtherHistory);
        assert!(
            !quarantine.is_unchanged(&key, id(1), id(2)),
            "the sweep retries it once"
        );
        assert!(quarantine.is_unchanged(&key, id(1), id(2)));
        assert!(!quarantine.is_unchanged(&key, id(1), id(3)), "Redis moved");
        assert!(
            !quarantine.is_unchanged(&key, id(2), id(3)),
            "the ledger moved"
        );
        assert!(quarantine.is_unchanged(&key, id(2), id(3)));
        quarantine.report(&row, StopReason::OtherAnchor { found: None });
        assert!(
            !quarantine.is_unchanged(&key, id(2), id(3)),
            "the stop reason changed"
        );
        quarantine.recovered(&key);
        assert!(!quarantine.is_unchanged(&key, id(2), id(3)));
    }
}
