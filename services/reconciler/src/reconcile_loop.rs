//! The reconcile loop: polls every item, checks the conservation invariant, and starts the work
//! that is pending.
//!
//! It polls an item that sells a few times a second, and one whose sale is over every ten seconds.
//! An item that is closed and settled rests: it is polled when the ledger has a change of it, when
//! the connection to Redis is new, and otherwise every ten minutes.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use audit::{Outboxes, Snapshot};
use domain::{ItemId, ItemState, SegmentConfig};
use futures::{StreamExt, stream};
use ledger::{LiveItem, Transfer};
use stock::Inspection;
use supervision::ErrorLatch;

use crate::{
    ERRORS, Reconciler, ReconcilerError,
    anomaly::{PendingWork, is_active},
    archive,
    balance::{self, Pace},
    close, gauges,
    home_check::HomeCheck,
    invariant::Invariant,
    item_lock, spillovers, transfers, waves,
};

/// Number of items that are reconciled concurrently.
const ITEM_CONCURRENCY: usize = 16;
/// Interval between two polls of an item whose sale is over.
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between two polls of an item that rests.
const RESTING_POLL_INTERVAL: Duration = Duration::from_secs(600);
/// Interval between two attempts to archive an item. Each reads all of its orders.
const ARCHIVE_RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Shortest time between two consolidations of an item: each costs a transfer from every segment.
const CONSOLIDATION_INTERVAL: Duration = Duration::from_millis(100);
/// Different numbers of units that are remembered for an item between two rounds. Orders repeat
/// their requests, so none is lost for good.
const REQUESTS_MAX: usize = 64;

/// State of an item that is kept between rounds.
struct Watched {
    next: Instant,
    /// The epoch and the version of the rows at which the item came to rest.
    resting_at: Option<(u64, u64)>,
    outboxes: Outboxes,
    invariant: Invariant,
    home_check: HomeCheck,
    error_latch: ErrorLatch,
    pace: Pace,
    consolidated: Option<Instant>,
    archive: ArchiveAttempts,
}

/// When the archive of the item was last tried, and what stood against it.
#[derive(Default)]
struct ArchiveAttempts {
    last: Option<Instant>,
    reasons: Vec<String>,
}

impl ArchiveAttempts {
    fn is_due(&self, now: Instant) -> bool {
        self.last
            .is_none_or(|last| now.saturating_duration_since(last) >= ARCHIVE_RETRY_INTERVAL)
    }

    /// Logs what stands against the archive, once.
    fn note(&mut self, id: &ItemId, reasons: Vec<String>) {
        if !reasons.is_empty() && reasons != self.reasons {
            tracing::warn!(item = %id, reasons = reasons.join("; "), "could not archive the item yet, retrying");
        }
        self.reasons = reasons;
    }
}

impl Watched {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            next: now,
            resting_at: None,
            outboxes: Outboxes::default(),
            invariant: Invariant::default(),
            home_check: HomeCheck::default(),
            error_latch: ErrorLatch::new("reconciling an item", ERRORS),
            pace: Pace::default(),
            consolidated: None,
            archive: ArchiveAttempts::default(),
        }
    }

    fn is_due(&self, item: &LiveItem, now: Instant) -> bool {
        if item.config.state == ItemState::Archived {
            return false;
        }
        self.next <= now
            || self
                .resting_at
                .is_some_and(|revision| revision != (item.config.epoch, item.rows_version))
    }

    /// Plans the next poll after one that found the item `active` or not.
    fn plan(&mut self, item: &LiveItem, active: bool, miscounted: u64) {
        let is_clean = self.invariant.is_clean() && miscounted == 0;
        let rests = !active && item.is_settled() && is_clean;
        self.resting_at = rests.then_some((item.config.epoch, item.rows_version));
        let pause = match (active, rests) {
            (true, _) => Duration::ZERO,
            (false, true) => RESTING_POLL_INTERVAL,
            (false, false) => IDLE_POLL_INTERVAL,
        };
        self.next = Instant::now() + pause;
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
            Some(request) = incoming.recv() => take_in(&mut items, &mut requests, request),
        }
        while let Ok(request) = incoming.try_recv() {
            take_in(&mut items, &mut requests, request);
        }
    }
}

/// `None`: the connection to Redis is new. Redis may have lost segments of items that rest.
fn take_in(
    items: &mut HashMap<ItemId, Watched>,
    requests: &mut ConsolidationRequests,
    request: Option<(ItemId, u64)>,
) {
    match request {
        Some((item, units)) => note(requests, item, units),
        None => {
            let now = Instant::now();
            items.values_mut().for_each(|watched| watched.next = now);
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
    let live = reconciler.ledger.live_items().await?;
    let known: HashSet<_> = live.iter().map(|item| &item.id).collect();
    items.retain(|id, _| known.contains(id));
    reconciler.audits.retain(&known);
    let mut due = Vec::new();
    for item in live {
        let watched = items.remove(&item.id).unwrap_or_else(Watched::new);
        let transfers: Vec<_> = open
            .iter()
            .filter(|transfer| transfer.item == item.id)
            .cloned()
            .collect();
        let wanted = wanted(requests, &item.id, &item.config).unwrap_or(0);
        let end = End::of(reconciler, &item, &watched, now);
        let wave = waves::is_due(&item, (reconciler.settings.clock)());
        let rests = !watched.is_due(&item, now) && end == End::None && !wave;
        if rests && transfers.is_empty() && wanted == 0 {
            items.insert(item.id, watched);
        } else {
            due.push((
                DueItem {
                    item,
                    end,
                    wave,
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
    item: LiveItem,
    end: End,
    wave: bool,
    transfers: Vec<Transfer>,
    wanted: u64,
}

/// What is due for the end of an item.
#[derive(Debug, PartialEq, Eq)]
enum End {
    None,
    /// Its window has ended, and it is not closed.
    Close,
    /// It is to be archived by this actor.
    Archive(String),
    /// It is archived, and Redis still has its keys.
    RemoveKeys,
}

impl End {
    fn of(reconciler: &Reconciler, item: &LiveItem, watched: &Watched, now: Instant) -> Self {
        let (settings, time) = (&reconciler.settings, (reconciler.settings.clock)());
        if close::is_due(&item.config, reconciler.close_delay(), time) {
            return Self::Close;
        }
        if !watched.archive.is_due(now) {
            return Self::None;
        }
        if item.config.state == ItemState::Archived {
            return Self::RemoveKeys;
        }
        archive::actor(item, settings.archive_after, time).map_or(Self::None, Self::Archive)
    }
}

async fn reconcile_and_latch(
    reconciler: &Arc<Reconciler>,
    due_item: DueItem,
    mut watched: Watched,
) -> (ItemId, Watched) {
    // A wave that cannot be added, because clocks differ, must not keep the item from its repair.
    let waved = if due_item.wave && due_item.item.config.state != ItemState::Archived {
        waves::add(reconciler, &due_item.item.id).await
    } else {
        Ok(())
    };
    let reconciled = reconcile(reconciler, &due_item, &mut watched).await;
    match reconciled.and(waved) {
        Ok(()) => watched.error_latch.recovered(),
        Err(error) => watched.error_latch.failed(&error),
    }
    (due_item.item.id, watched)
}

async fn reconcile(
    reconciler: &Arc<Reconciler>,
    due_item: &DueItem,
    watched: &mut Watched,
) -> Result<(), ReconcilerError> {
    let DueItem {
        item,
        end,
        transfers,
        wanted,
        ..
    } = due_item;
    let (id, settings) = (&item.id, &item.config);
    if item.config.state == ItemState::Archived {
        return archive_item(reconciler, id, "reconciler", watched).await;
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
    let active = is_active(&snapshots, (reconciler.settings.clock)())
        || !transfers.is_empty()
        || watched.home_check.is_waiting();
    watched.plan(item, active, reconciler.audits.miscounted(id));
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
    let balance = reconciler.settings.balance && may_move && balance::is_needed(&snapshots, wanted);
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
    match end {
        End::Close => close::close(reconciler, id).await,
        End::Archive(actor) => {
            watched.archive.last = Some(Instant::now());
            match archive::is_due(reconciler, item).await? {
                true => archive_item(reconciler, id, actor, watched).await,
                false => Ok(()),
            }
        }
        End::None | End::RemoveKeys => Ok(()),
    }
}

fn inspections(snapshots: &[Snapshot]) -> Vec<Inspection> {
    let inspections = snapshots.iter().map(|snapshot| snapshot.inspection.clone());
    inspections.flatten().collect()
}

/// Archives the item, or removes the keys of one that is archived.
async fn archive_item(
    reconciler: &Arc<Reconciler>,
    id: &ItemId,
    actor: &str,
    watched: &mut Watched,
) -> Result<(), ReconcilerError> {
    watched.archive.last = Some(Instant::now());
    let work = PendingWork {
        archive: Some(actor.to_owned()),
        ..PendingWork::default()
    };
    if let Some(reasons) = item_lock::work_under_lock(reconciler, id, work).await? {
        watched.archive.note(id, reasons);
    }
    Ok(())
}
