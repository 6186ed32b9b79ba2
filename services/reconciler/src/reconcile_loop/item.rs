//! One item in one round: its snapshots are judged, and what they ask for is begun.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use audit::{Outboxes, Snapshot};
use domain::{ItemId, ItemState};
use stock::Inspection;
use supervision::ErrorLatch;

use super::due::DueItem;
use crate::{
    ERRORS, Reconciler, ReconcilerError,
    anomaly::{PendingWork, has_holds, has_work},
    balance::{self, Pace},
    close, gauges,
    home_check::HomeCheck,
    invariant::Invariant,
    item_lock, spillovers, transfers, waves,
};

/// Shortest time between two consolidations of an item: each costs a transfer from every segment.
const CONSOLIDATION_INTERVAL: Duration = Duration::from_millis(100);

/// State of an item that is kept between rounds.
pub(super) struct Watched {
    outboxes: Outboxes,
    invariant: Invariant,
    home_check: HomeCheck,
    error_latch: ErrorLatch,
    pace: Pace,
    consolidated: Option<Instant>,
    failure: Option<Failure>,
}

/// The last attempt has failed.
struct Failure {
    /// Attempts that have failed since the last that did not.
    in_a_row: u32,
    /// When the last one has failed. `None`: something has changed since.
    at: Option<Instant>,
}

impl Watched {
    pub(super) fn new() -> Self {
        Self {
            outboxes: Outboxes::default(),
            invariant: Invariant::default(),
            home_check: HomeCheck::default(),
            error_latch: ErrorLatch::new("reconciling an item", ERRORS),
            pace: Pace::default(),
            consolidated: None,
            failure: None,
        }
    }

    /// Whether the last attempt has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// When the last attempt has failed. `None`: something has changed since.
    pub(super) fn failed(&self) -> Option<Instant> {
        self.failure.as_ref()?.at
    }

    /// Something has changed, so that the next attempt may succeed.
    pub(super) fn note_change(&mut self) {
        if let Some(failure) = &mut self.failure {
            failure.at = None;
        }
    }

    /// Returns how many attempts have failed in a row.
    fn note_attempt(&mut self, has_failed: bool) -> u32 {
        let before = self.failure.take().map_or(0, |failure| failure.in_a_row);
        self.failure = has_failed.then(|| Failure {
            in_a_row: before.saturating_add(1),
            at: Some(Instant::now()),
        });
        self.failure.as_ref().map_or(0, |failure| failure.in_a_row)
    }

    /// When the item is polled again after these snapshots.
    fn next(&self, snapshots: &[Snapshot], has_transfers: bool, miscounted: u64) -> Next {
        let works = has_work(snapshots) || has_transfers || self.home_check.is_waiting();
        if works || !self.invariant.is_clean() {
            Next::Round
        } else if has_holds(snapshots) || miscounted != 0 {
            Next::Wait
        } else {
            Next::Rest
        }
    }

    fn may_consolidate(&self, now: Instant) -> bool {
        self.consolidated
            .is_none_or(|last| now.saturating_duration_since(last) >= CONSOLIDATION_INTERVAL)
    }
}

/// When an item is polled next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// In the next round.
    Round,
    /// After a while: it waits for payments, or for the end of what an operator has to look at.
    Wait,
    /// Nothing is to be done for it until something changes.
    Rest,
    /// After a pause: it has failed so often, one time after the other.
    Repeat(u32),
}

/// An item that has been reconciled, and when it is polled next.
pub(super) type Reconciled = (ItemId, Watched, Next);

/// Reconciles the item, and says when it is polled next.
pub(super) async fn reconcile_and_latch(
    reconciler: &Arc<Reconciler>,
    due_item: DueItem,
    mut watched: Watched,
) -> Reconciled {
    // A wave that cannot be added, because clocks differ, must not keep the item from its repair.
    let waved = if due_item.wave && due_item.item.config.state != ItemState::Archived {
        waves::add(reconciler, &due_item.item.id).await
    } else {
        Ok(())
    };
    let reconciled = reconcile(reconciler, &due_item, &mut watched).await;
    let failures = watched.note_attempt(reconciled.is_err() || waved.is_err());
    let next = *reconciled.as_ref().unwrap_or(&Next::Repeat(failures));
    match reconciled.map(drop).and(waved) {
        Ok(()) => watched.error_latch.recovered(),
        Err(error) => watched.error_latch.failed(&error),
    }
    (due_item.item.id, watched, next)
}

async fn reconcile(
    reconciler: &Arc<Reconciler>,
    due_item: &DueItem,
    watched: &mut Watched,
) -> Result<Next, ReconcilerError> {
    let DueItem {
        item,
        close,
        transfers,
        wanted,
        ..
    } = due_item;
    let (id, settings) = (&item.id, &item.config);
    if item.config.state == ItemState::Archived {
        // Nothing is left to be looked at. Its keys are removed when the clock says so.
        return Ok(Next::Rest);
    }
    let (stock, ledger) = (&reconciler.stock, &*reconciler.ledger);
    let snapshots = watched.outboxes.snapshots(stock, ledger, id).await?;
    gauges::show_item(reconciler, id, &snapshots);
    let repair = watched
        .invariant
        .judge(reconciler, id, settings, &snapshots)
        .await?;
    let check = watched
        .home_check
        .due(&snapshots, reconciler.deadlines_pass(), Instant::now());
    let next = watched.next(
        &snapshots,
        !transfers.is_empty(),
        reconciler.audits.miscounted(id),
    );
    if snapshots.iter().any(|snapshot| {
        snapshot
            .inspection
            .as_ref()
            .is_some_and(|inspection| inspection.spillovers > 0)
    }) {
        spillovers::settle(reconciler, id).await?;
    }
    if due_item.transfers.is_empty() {
        // A reconciler that crashed may have left some.
        transfers::settle(reconciler, id, &inspections(&snapshots)).await?;
    }
    let now = Instant::now();
    // Units in transit are in no segment, and a spillover that misses them has to wait. So the pace
    // is a condition also for an order that waits.
    let may_move = watched.pace.lasts(now, &snapshots) && repair.is_empty() && transfers.is_empty();
    let wanted = if watched.may_consolidate(now) {
        *wanted
    } else {
        0
    };
    let is_uneven = reconciler.settings.balance && balance::is_needed(&snapshots, wanted);
    let balance = is_uneven && may_move;
    if balance && wanted > 0 {
        watched.consolidated = Some(now);
    }
    // A repair comes first. It changes the epoch, so the check begins again.
    let check = if repair.is_empty() { check } else { Vec::new() };
    let work = PendingWork {
        repair,
        check,
        transfers: !transfers.is_empty(),
        balance,
        wanted,
        ..PendingWork::default()
    };
    if !work.is_empty() {
        item_lock::work_under_lock(reconciler, id, work).await?;
    }
    if *close {
        close::close(reconciler, id).await?;
    }
    // Units that are to be moved have to wait for the pace of the sale.
    Ok(if is_uneven { Next::Round } else { next })
}

fn inspections(snapshots: &[Snapshot]) -> Vec<Inspection> {
    let inspections = snapshots.iter().map(|snapshot| snapshot.inspection.clone());
    inspections.flatten().collect()
}
