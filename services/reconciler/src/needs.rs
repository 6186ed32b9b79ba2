//! What an item needs, from one look at it.

use std::time::Duration;

use audit::Look;
use domain::{ItemState, SegmentConfig, SegmentKey};

/// What is wrong with a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Its outbox does not begin with what was recorded last, or it or a part of it is gone.
    Diverged,
    /// Redis has so many units more than the identity says (fewer, if negative).
    Drift { units: i64 },
    /// Somebody began to mend it under this token, and it is still halted.
    Halted { token: u64 },
    /// It is open, paused or limited otherwise than its item, and has seen this epoch, so no change of the item that is not above it gets through: somebody
    /// who mended it died before the ledger knew of the epoch.
    Settings { epoch: u64 },
}

impl Wrong {
    /// The item's settings are to be read before the look: what has changed in between looks wrong, and does not stand.
    pub(crate) fn of(look: &Look, settings: &SegmentConfig) -> Option<Self> {
        if let Some(token) = look
            .inspection
            .as_ref()
            .and_then(|inspection| inspection.mending)
        {
            return Some(Self::Halted { token });
        }
        // A segment that was never recorded and is not there yet is being created.
        let is_new = look.row.checkpoint.is_none() && look.inspection.is_none();
        if is_new {
            return None;
        }
        if !look.goes_on() {
            return Some(Self::Diverged);
        }
        let units = look.drift();
        if units != 0 {
            return Some(Self::Drift { units });
        }
        let inspection = look.inspection.as_ref()?;
        // One that is behind has missed a change: the recorders' sweep tells it.
        let is_behind = inspection.epoch < settings.epoch;
        (!is_behind && !inspection.is_set_as(settings)).then_some(Self::Settings {
            epoch: inspection.epoch,
        })
    }

    /// How long it must stand. That the anchor is gone is never in doubt: the look was repeated until row and outbox belonged together.
    pub(crate) fn patience(&self, confirm_for: Duration) -> Duration {
        match self {
            Self::Diverged => Duration::ZERO,
            Self::Drift { .. } | Self::Halted { .. } | Self::Settings { .. } => confirm_for,
        }
    }

    /// How long it must stand before it is told. An operator's change looks like other settings for a moment.
    pub(crate) fn told_after(&self, confirm_for: Duration) -> Duration {
        match self {
            Self::Diverged | Self::Drift { .. } | Self::Halted { .. } => Duration::ZERO,
            Self::Settings { .. } => confirm_for,
        }
    }

    /// What there is to see, in words.
    pub(crate) fn finding(&self, look: &Look) -> String {
        match self {
            Self::Settings { epoch } => format!(
                "it is not set as its item is, at epoch {epoch}: somebody mended it and did not end"
            ),
            Self::Halted { .. } | Self::Diverged | Self::Drift { .. } => look
                .finding()
                .unwrap_or_else(|| "somebody began to mend it".into()),
        }
    }

    /// The word for logs and the journal.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Diverged => "diverged",
            Self::Drift { .. } => "drift",
            Self::Halted { .. } => "halted",
            Self::Settings { .. } => "settings",
        }
    }
}

/// What only the holder of the item's lock may do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Segments to be mended, and what is wrong with each.
    pub mend: Vec<(SegmentKey, Wrong)>,
    /// Transfers are under way.
    pub transfers: bool,
    /// Units should be moved.
    pub balance: bool,
    /// Somebody waits for so many units in one place.
    pub wanted: u64,
}

impl Needs {
    pub(crate) fn is_empty(&self) -> bool {
        self.mend.is_empty() && !self.transfers && !self.balance
    }
}

/// Whether the item can change without anybody's doing: it sells, or something of it is under way.
pub(crate) fn is_lively(looks: &[Look]) -> bool {
    looks.iter().any(|look| {
        look.inspection.as_ref().is_none_or(|inspection| {
            inspection.state != ItemState::Closed
                || inspection.walks > 0
                || inspection.outbox > 1
                || inspection.mending.is_some()
        }) || look.row.held + look.row.returning > 0
    })
}
