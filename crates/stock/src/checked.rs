//! Whether the homes of an item know what they have declined.
//!
//! A home that declines an order writes no outbox entry, so a failover can lose the decline alone.
//! Each home has a mark: the history of its server in which the reconciler found its decisions
//! complete (`lua/mark_checked.lua`). A failover begins another history, and until the reconciler
//! has checked home in it, home may know nothing of an order that another segment has.
//!
//! So a buyer counts as a stranger only if the home was checked in the same history before and
//! after it was asked, and no repair came in between: a repair raises the fence.
//! `lab/models/tests/it/stock/forgotten.rs` checks these rules, and that each is needed.

use domain::SafetyCheck;

use crate::script::Inspection;

/// For each segment the history in which it was checked as a home, and its fence. Empty for an item
/// of one segment: none of its orders is away from home.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked(Vec<(String, u64)>);

impl Checked {
    /// `None`: a segment is not marked as checked.
    pub(crate) fn of(segments: &[Inspection]) -> Option<Self> {
        if segments.len() < 2 {
            return Some(Self::default());
        }
        segments
            .iter()
            .map(checked)
            .collect::<Option<_>>()
            .map(Self)
    }

    /// Whether the home is checked in the same history still, and no repair has come in between.
    pub(crate) fn has(&self, home: u16, now: &Inspection) -> bool {
        let before = self.0.get(usize::from(home));
        before.is_none_or(|before| checked(now).as_ref() == Some(before))
    }
}

fn checked(segment: &Inspection) -> Option<(String, u64)> {
    let is_checked = segment.checked == segment.history || !SafetyCheck::CheckedHome.is_enabled();
    is_checked.then(|| (segment.history.clone(), segment.fence))
}
