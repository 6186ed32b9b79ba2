//! The reconcile loop: polls every item, checks the conservation invariant, and starts the work
//! that is pending.
//!
//! It polls an item that sells a few times a second, and one that is closed, or whose sale is over,
//! and that is settled every ten seconds.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use domain::{ItemId, SegmentConfig};
use futures::{StreamExt, stream};
use ledger::Transfer;
use supervision::ErrorLatch;

use crate::{
    ERRORS, Reconciler, ReconcilerError,
    anomaly::{PendingWork, is_active},
    balance::{self, Pace},
    gauges,
    invariant::Invariant,
    item_lock, spillovers,
};

/// Number of items that are reconciled concurrently.
const ITEM_CONCURRENCY: usize = 16;
/// Interval between two polls of an item that is closed and settled.
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Shortest time between two consolidations of an item: each costs a transfer from every segment.
const CONSOLIDATION_INTERVAL: Duration = Duration::from_millis(100);
/// Different numbers of units that are remembered for an item between two rounds. Orders repeat
/// their requests, so none is lost for good.
const REQUESTS_MAX: usize = 64;

/// State of an item that is kept between rounds.
struct Watched {
    next: Instant,
    invariant: Invariant,
    error_latch: ErrorLatch,
    pace: Pace,
    consolidated: Option<Instant>,
}

impl Watched {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            next: now,
            invariant: Invariant::new(now),
            error_latch: ErrorLatch::new("reconciling an item", ERRORS),
            pace: Pace::default(),
            consolidated: None,
        }
    }

    fn may_consolidate(&self, now: Instant) -> bool {
        self.consolidated
            .is_none_or(|last| now.saturating_duration_since(last) >= CONSOLIDATION_INTERVAL)
    }
}

/// Numbers of units that waiting orders need in one segment, by item.
type ConsolidationRequests = HashMap<ItemId, BTreeSet<u64>>;

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let (mut items, error_latch) = (
        HashMap::new(),
        ErrorLatch::new("a round of the reconcile loop", ERRORS),
    );
    let (mut incoming, mut requests) = (
        reconciler.stock.consolidation_requests(),
        ConsolidationRequests::new(),
    );
    loop {
        match reconcile_due(&reconciler, &mut items, &requests).await {
            Ok(()) => error_latch.recovered(),
            Err(error) => error_latch.failed(&error),
        }
        requests.clear();
        tokio::select! {
            () = reconciler.stop.cancelled() => return,
            () = tokio::time::sleep(reconciler.settings.poll_interval) => {}
            Some((item, units)) = incoming.recv() => note(&mut requests, item, units),
        }
        while let Ok((item, units)) = incoming.try_recv() {
            note(&mut requests, item, units);
        }
    }
}

fn note(requests: &mut ConsolidationRequests, item: ItemId, units: u64) {
    let wanted = requests.entry(item).or_default();
    if wanted.len() < REQUESTS_MAX {
        wanted.insert(units);
    }
}

/// The most units that an order may have of those that orders wait for. Anyone can ask for more
/// than the item's limit, and the units would be moved for an order that is refused.
fn wanted(requests: &ConsolidationRequests, id: &ItemId, settings: &SegmentConfig) -> Option<u64> {
    let limit = settings
        .limit_per_buyer
        .map_or(u64::MAX, |limit| u64::from(limit.get()));
    requests.get(id)?.range(..=limit).next_back().copied()
}

async fn reconcile_due(
    reconciler: &Arc<Reconciler>,
    items: &mut HashMap<ItemId, Watched>,
    requests: &ConsolidationRequests,
) -> Result<(), ReconcilerError> {
    let (now, open) = (
        Instant::now(),
        reconciler.ledger.open_transfers(None).await?,
    );
    let configs = reconciler.ledger.segment_configs().await?;
    items.retain(|id, _| configs.iter().any(|(known, _)| known == id));
    let mut due = Vec::new();
    for (id, settings) in configs {
        let watched = items.remove(&id).unwrap_or_else(Watched::new);
        let transfers: Vec<_> = open
            .iter()
            .filter(|transfer| transfer.item == id)
            .cloned()
            .collect();
        let wanted = wanted(requests, &id, &settings).unwrap_or(0);
        if watched.next > now && transfers.is_empty() && wanted == 0 {
            items.insert(id, watched);
        } else {
            due.push((
                DueItem {
                    id,
                    settings,
                    transfers,
                    wanted,
                },
                watched,
            ));
        }
    }
    let reconciled = stream::iter(due)
        .map(|(due_item, watched)| reconcile_and_latch(reconciler, due_item, watched));
    items.extend(
        reconciled
            .buffer_unordered(ITEM_CONCURRENCY)
            .collect::<Vec<_>>()
            .await,
    );
    Ok(())
}

/// An item that is due, as the ledger has it.
struct DueItem {
    id: ItemId,
    settings: SegmentConfig,
    transfers: Vec<Transfer>,
    wanted: u64,
}

async fn reconcile_and_latch(
    reconciler: &Arc<Reconciler>,
    due_item: DueItem,
    mut watched: Watched,
) -> (ItemId, Watched) {
    match reconcile(reconciler, &due_item, &mut watched).await {
        Ok(()) => watched.error_latch.recovered(),
        Err(error) => watched.error_latch.failed(&error),
    }
    (due_item.id, watched)
}

async fn reconcile(
    reconciler: &Arc<Reconciler>,
    due_item: &DueItem,
    watched: &mut Watched,
) -> Result<(), ReconcilerError> {
    let DueItem {
        id,
        settings,
        transfers,
        wanted,
    } = due_item;
    let snapshots = audit::snapshots(&reconciler.stock, &*reconciler.ledger, id).await?;
    gauges::show_item(reconciler, id, &snapshots);
    let repair = watched
        .invariant
        .judge(reconciler, id, settings, &snapshots)
        .await?;
    let active = is_active(&snapshots, (reconciler.settings.clock)()) || !transfers.is_empty();
    watched.next = Instant::now()
        + if active {
            Duration::ZERO
        } else {
            IDLE_POLL_INTERVAL
        };
    if snapshots.iter().any(|snapshot| {
        snapshot
            .inspection
            .as_ref()
            .is_some_and(|inspection| inspection.spillovers > 0)
    }) {
        spillovers::settle(reconciler, id).await?;
    }
    let now = Instant::now();
    // Units in transit are in no segment, and a spillover that misses them ends sold out. So the
    // pace is a condition also for an order that waits.
    let may_move = watched.pace.lasts(now, &snapshots) && repair.is_empty() && transfers.is_empty();
    let wanted = if watched.may_consolidate(now) {
        *wanted
    } else {
        0
    };
    let balance = reconciler.settings.balance && may_move && balance::is_needed(&snapshots, wanted);
    if balance && wanted > 0 {
        watched.consolidated = Some(now);
    }
    let work = PendingWork {
        repair,
        transfers: !transfers.is_empty(),
        balance,
        wanted,
    };
    if !work.is_empty() {
        item_lock::work_under_lock(reconciler, id, work).await?;
    }
    watched.invariant.audit(reconciler, id).await
}
