//! Snapshots of all segments, and what two of them prove.
//!
//! The segments are read at different moments, and units move meanwhile: a unit that goes from a
//! segment that was not read yet to one that was read is in neither. So one snapshot proves
//! nothing. Two prove something if no segment has gained units in between. Each segment's units,
//! those on their way from it included, then only became fewer. When the second snapshot began, all
//! segments together had no more free units than the first one shows.
//! `lab/models/tests/it/stock/truth.rs` checks it.
//!
//! All orders of a process share the snapshots: however many are refused, each of them costs one.
//!
//! A snapshot also tells whether each home knows what it has declined: its mark is its server's
//! history (`lua/mark_checked.lua`). A failover begins another history, and until the reconciler's
//! home check has set the mark, home may know nothing of an order that another segment has. So a
//! buyer counts as a stranger only if home was *checked* in the same history before and after home
//! was asked, and no repair came in between: a repair raises the fence.
//! `lab/models/tests/it/stock/forgotten.rs` checks it.

use std::{sync::Arc, time::Instant};

use arc_swap::ArcSwapOption;
use tokio::sync::Mutex;

use super::ItemStock;
use crate::{
    StockError,
    checked::Checked,
    request::Gate,
    script::{Inspection, InspectionEntries},
};

/// A snapshot of all segments.
pub(super) struct Survey {
    /// What the homes were checked in. `None`: one of them may have lost what it had declined.
    pub checked: Option<Arc<Checked>>,
    /// When it began.
    pub begun: Instant,
    pub segments: Vec<Inspection>,
    /// No more units than these were free when it began. `None`: not known, because it does not
    /// agree with the snapshot before.
    pub free_at_most: Option<u64>,
}

/// The last snapshot. The lock is held while one is taken, so that one order takes it and the
/// others wait.
#[derive(Default)]
pub(super) struct Surveys {
    last: Mutex<Option<Arc<Survey>>>,
    /// What the homes were checked in, by the last snapshot.
    checked: ArcSwapOption<Checked>,
}

impl Surveys {
    pub(super) fn checked(&self) -> Option<Arc<Checked>> {
        self.checked.load_full()
    }
}

impl Survey {
    /// Why the item does not sell at `now_ms`, if any segment says so.
    pub(super) fn closed_gate(&self, now_ms: i64) -> Option<Gate> {
        let sells = |segment: &Inspection| {
            segment.state == domain::ItemState::Open
                && segment.opens_ms <= now_ms
                && (segment.closes_ms == 0 || now_ms < segment.closes_ms)
        };
        let closed = self.segments.iter().find(|segment| !sells(segment))?;
        Some(Gate {
            state: closed.state.as_str().to_owned(),
            opens_ms: closed.opens_ms,
            closes_ms: closed.closes_ms,
        })
    }

    /// Whether one segment has so many units.
    pub(super) fn has_together(&self, units: u64) -> bool {
        let mut segments = self.segments.iter();
        segments.any(|segment| segment.available >= units)
    }

    /// Whether the segments have so many units, but none of them alone.
    pub(super) fn has_in_fragments(&self, units: u64) -> bool {
        let all = self.segments.iter().map(|segment| segment.available);
        !self.has_together(units) && all.sum::<u64>() >= units
    }
}

impl ItemStock {
    /// A snapshot that began at `since` or later, possibly that of another order.
    pub(super) async fn survey(&self, since: Instant) -> Result<Arc<Survey>, StockError> {
        let mut last = self.surveys.last.lock().await;
        if let Some(survey) = last.as_ref().filter(|survey| survey.begun >= since) {
            return Ok(Arc::clone(survey));
        }
        let begun = Instant::now();
        let entries = match self.segments.len() {
            1 => InspectionEntries::None,
            _ => InspectionEntries::History,
        };
        let inspected = self.inspect(entries);
        let segments = self.shared.runtime.host(inspected).await?;
        self.limit.refresh(&segments);
        for segment in &segments {
            let available = segment.available;
            self.admission.saw(segment.segment.segment, available);
        }
        let free_at_most = match &segments[..] {
            [only] => is_sound(only).then(|| free(only)),
            all => last.as_ref().and_then(|last| proof(&last.segments, all)),
        };
        let checked = Checked::of(&segments).map(Arc::new);
        self.surveys.checked.store(checked.clone());
        let survey = Arc::new(Survey {
            checked,
            begun,
            segments,
            free_at_most,
        });
        *last = Some(Arc::clone(&survey));
        Ok(survey)
    }
}

/// Free units of the item between the two snapshots, at most.
fn proof(before: &[Inspection], after: &[Inspection]) -> Option<u64> {
    let agree = |(before, after): (&Inspection, &Inspection)| {
        is_sound(before)
            && is_sound(after)
            && before.gained == after.gained
            && before.epoch == after.epoch
            // More without a gain: a failover has lost what was taken.
            && free(after) <= free(before)
    };
    let all_agree = before.iter().zip(after).all(agree);
    (before.len() == after.len() && all_agree).then(|| before.iter().map(free).sum())
}

/// Whether the segment has all of its keys, and no repair changes them.
pub(super) fn is_sound(segment: &Inspection) -> bool {
    segment.whole && segment.repairing.is_none()
}

/// Units of the segment, and those on their way from it.
fn free(segment: &Inspection) -> u64 {
    segment.available.saturating_add(segment.leaving)
}
