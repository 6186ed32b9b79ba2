//! Segments that cannot be recorded any further, and why.
//!
//! A segment's history may not be the one that was recorded: after a failover to a replica that lagged, a restart without persistence, a restored
//! backup. Nothing more of it may be recorded then: its entries would be applied to counters that they do not follow from. An entry that
//! this release cannot read, or that the ledger refuses, stops its segment too. Repairing it is not the recorder's business; saying so
//! once for every change, and going on with all others, is.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use domain::{EntryId, SegmentKey};
use ledger::SegmentRow;

/// A stopped segment that looks as it did is tried again after this long, in case it was mended behind our back.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// Why a segment is not recorded any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Why {
    /// What stands where the checkpoint should be.
    #[error("history has diverged: the outbox does not begin with what was recorded last but with {}", found.map_or_else(|| "nothing".into(), |(id, _)| id.to_string()))]
    OtherAnchor { found: Option<(EntryId, i64)> },
    /// The anchor is right, and what follows is not.
    #[error("history has diverged: the outbox does not continue what was recorded last")]
    OtherHistory,
    #[error("an entry cannot be read: {0}")]
    Unreadable(String),
    #[error("the ledger refuses an entry: {0}")]
    Refused(String),
}

/// The stopped segments that this process has met.
#[derive(Default)]
pub(crate) struct Lost(Mutex<HashMap<SegmentKey, Stop>>);

struct Stop {
    checkpoint: Option<EntryId>,
    why: Why,
    /// When the sweep last had it tried, and what it saw then.
    tried: Option<(Instant, Sight)>,
}

/// A segment as the sweep sees it: the ledger's checkpoint and the last entry in Redis.
type Sight = (Option<EntryId>, Option<EntryId>);

impl Lost {
    fn lock(&self) -> MutexGuard<'_, HashMap<SegmentKey, Stop>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in that the row's segment cannot be recorded, and says so if it is news.
    pub(crate) fn report(&self, row: &SegmentRow, why: Why) {
        metrics::counter!("stockade_diverged_reads_total", "item" => row.key.item.to_string())
            .increment(1);
        let mut stops = self.lock();
        if stops
            .get(&row.key)
            .is_some_and(|stop| stop.checkpoint == row.checkpoint && stop.why == why)
        {
            return;
        }
        tracing::error!(segment = %row.key, checkpoint = row.checkpoint.map(tracing::field::display), %why, "this segment is not recorded any further");
        stops.insert(
            row.key.clone(),
            Stop {
                checkpoint: row.checkpoint,
                why,
                tried: None,
            },
        );
        count(&stops);
    }

    /// Takes in that the segment was recorded, or has nothing more.
    pub(crate) fn is_well(&self, segment: &SegmentKey) {
        let mut stops = self.lock();
        if stops.remove(segment).is_some() {
            tracing::info!(%segment, "this segment is recorded again");
            count(&stops);
        }
    }

    /// Whether the sweep may pass the segment over: it is stopped, and nothing has changed since it was last tried.
    pub(crate) fn is_as_it_was(
        &self,
        segment: &SegmentKey,
        checkpoint: Option<EntryId>,
        last: Option<EntryId>,
    ) -> bool {
        let mut stops = self.lock();
        let Some(stop) = stops.get_mut(segment) else {
            return false;
        };
        let (now, sight) = (Instant::now(), (checkpoint, last));
        if stop
            .tried
            .is_some_and(|(when, before)| before == sight && now - when < TRY_AGAIN)
        {
            return true;
        }
        stop.tried = Some((now, sight));
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

    use super::{Lost, Why};

    #[test]
    fn a_stopped_segment_is_tried_again_when_something_changes() {
        let (lost, key) = (Lost::default(), "vase:0".parse::<SegmentKey>().unwrap());
        let id = |ms| Some(EntryId { ms, seq: 0 });
        assert!(!lost.is_as_it_was(&key, id(1), id(2)), "it is not stopped");
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
        lost.report(&row, Why::OtherHistory);
        assert!(!lost.is_as_it_was(&key, id(1), id(2)), "once by the sweep");
        assert!(lost.is_as_it_was(&key, id(1), id(2)));
        assert!(!lost.is_as_it_was(&key, id(1), id(3)), "Redis moved");
        assert!(!lost.is_as_it_was(&key, id(2), id(3)), "the ledger moved");
        assert!(lost.is_as_it_was(&key, id(2), id(3)));
        lost.report(&row, Why::OtherAnchor { found: None });
        assert!(
            !lost.is_as_it_was(&key, id(2), id(3)),
            "it is stopped for another reason"
        );
        lost.is_well(&key);
        assert!(!lost.is_as_it_was(&key, id(2), id(3)));
    }
}
