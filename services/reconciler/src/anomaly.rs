//! Anomalies and pending work of an item, from one snapshot of it.

use std::time::Duration;

use audit::{ReadOrders, Snapshot};
use domain::{SegmentConfig, SegmentKey};

use crate::home_check::UncheckedHome;

/// Why a segment needs repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Anomaly {
    /// Its outbox does not begin with the entry recorded last, or some of its keys are gone.
    Diverged,
    /// Redis has `units` more than the conservation invariant allows (fewer, if negative).
    Drift { units: i64 },
    /// A repair under this token has halted it and did not finish.
    Halted { token: u64 },
    /// Its state, window or limit differs from its item's, at this epoch. The segment refuses
    /// changes of the item up to this epoch. The cause is a repair that died before the ledger
    /// recorded the epoch.
    Settings { epoch: u64 },
}

impl Anomaly {
    /// The item's settings must be read before the snapshot. A change in between shows up as an
    /// anomaly that does not persist.
    pub(crate) fn of(snapshot: &Snapshot, settings: &SegmentConfig) -> Option<Self> {
        if let Some(token) = snapshot
            .inspection
            .as_ref()
            .and_then(|inspection| inspection.repairing)
        {
            return Some(Self::Halted { token });
        }
        // A segment that was never recorded and has no keys is being created.
        let is_new = snapshot.row.checkpoint.is_none() && snapshot.inspection.is_none();
        if is_new {
            return None;
        }
        if !snapshot.is_intact() {
            return Some(Self::Diverged);
        }
        let units = snapshot.drift();
        if units != 0 {
            return Some(Self::Drift { units });
        }
        let inspection = snapshot.inspection.as_ref()?;
        // A segment with a lower epoch has missed a change, which the recorders' sweep applies.
        let is_behind = inspection.epoch < settings.epoch;
        (!is_behind && !inspection.is_set_as(settings)).then_some(Self::Settings {
            epoch: inspection.epoch,
        })
    }

    /// How long the anomaly must persist before it is repaired. A missing anchor needs no
    /// confirmation: the snapshot was repeated until row and outbox matched.
    pub(crate) fn confirmed_after(&self, confirmation_period: Duration) -> Duration {
        match self {
            Self::Diverged => Duration::ZERO,
            Self::Drift { .. } | Self::Halted { .. } | Self::Settings { .. } => confirmation_period,
        }
    }

    /// How long the anomaly must persist before it is reported. An operator's change looks like
    /// wrong settings for a moment.
    pub(crate) fn reported_after(&self, confirmation_period: Duration) -> Duration {
        match self {
            Self::Diverged | Self::Drift { .. } | Self::Halted { .. } => Duration::ZERO,
            Self::Settings { .. } => confirmation_period,
        }
    }

    /// Description of the anomaly.
    pub(crate) fn finding(&self, snapshot: &Snapshot) -> String {
        match self {
            Self::Settings { epoch } => format!(
                "its settings differ from its item's at epoch {epoch}: a repair of it did not finish"
            ),
            Self::Halted { .. } | Self::Diverged | Self::Drift { .. } => snapshot
                .finding()
                .unwrap_or_else(|| "it is halted: a repair of it did not finish".into()),
        }
    }

    /// The name of the anomaly in logs and in the journal.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Diverged => "diverged",
            Self::Drift { .. } => "drift",
            Self::Halted { .. } => "halted",
            Self::Settings { .. } => "settings",
        }
    }
}

/// What an item is archived with.
#[derive(Debug)]
pub(crate) struct ArchiveWork {
    /// Who has it archived.
    pub actor: String,
    /// Its orders. `None`: it is archived, or it cannot be.
    pub orders: Option<ReadOrders>,
}

/// Work that needs the item's lock.
#[derive(Debug, Default)]
pub(crate) struct PendingWork {
    /// Segments to be repaired, and the anomaly of each.
    pub repair: Vec<(SegmentKey, Anomaly)>,
    /// Whether every segment is to be rebuilt from the ledger alone.
    pub rebuild: bool,
    /// Whether transfers are under way.
    pub transfers: bool,
    /// Whether units should be moved.
    pub balance: bool,
    /// Number of units that a waiting order needs in one segment; 0 if none waits.
    pub wanted: u64,
    /// Homes whose decisions are to be compared with the ledger.
    pub check: Vec<UncheckedHome>,
    /// The archive of the item, or the removal of its keys.
    pub archive: Option<ArchiveWork>,
}

impl PendingWork {
    /// Nothing else than an archive for `actor`, judged by these orders.
    pub(crate) fn archive(actor: &str, orders: Option<ReadOrders>) -> Self {
        let archive = Some(ArchiveWork {
            actor: actor.to_owned(),
            orders,
        });
        Self {
            archive,
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.repair.is_empty()
            && !self.rebuild
            && !self.transfers
            && !self.balance
            && self.check.is_empty()
            && self.archive.is_none()
    }
}

/// Whether something is under way that ends soon, and needs to be looked at until then.
pub(crate) fn has_work(snapshots: &[Snapshot]) -> bool {
    snapshots.iter().any(|snapshot| {
        snapshot.inspection.as_ref().is_none_or(|inspection| {
            inspection.spillovers > 0
                || inspection.outbox > 1
                || inspection.leaving > 0
                || inspection.repairing.is_some()
        }) || snapshot.row.returning > 0
    })
}

/// Whether orders have units without having paid.
pub(crate) fn has_holds(snapshots: &[Snapshot]) -> bool {
    snapshots.iter().any(|snapshot| snapshot.row.held > 0)
}
