//! The reconcile loop: polls items, checks the conservation invariant, and starts the work that is
//! pending.
//!
//! It polls an item that sells a few times a second. What makes an item change reaches it: wake-ups
//! of outboxes, changes of the item in the ledger, transfers, and orders that wait for units. An item
//! without any of them is polled every ten seconds while orders are held, and otherwise it rests:
//! open, it is polled about once an hour, and closed, never. A subscription that was lost has every
//! item polled. Between the masters of a cluster a wake-up can be lost unnoticed, so rests are short
//! there.
//!
//! What is due by the clock (waves, the end of a window, archives) is looked for in the list that the
//! loop keeps of the items, and costs no call.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use audit::{Outboxes, Snapshot};
use domain::{ItemId, ItemState, SegmentConfig};
use futures::{StreamExt, stream};
use ledger::{LiveItem, LiveItems, Transfer};
use stock::{Inspection, Woken};
use supervision::{ErrorLatch, Rota, spread};

use crate::{
    ERRORS, Reconciler, ReconcilerError,
    anomaly::{PendingWork, has_holds, has_work},
    archive,
    balance::{self, Pace},
    close, gauges,
    home_check::HomeCheck,
    invariant::Invariant,
    item_lock, spillovers, transfers, waves,
};

/// Number of items that are reconciled concurrently.
const ITEM_CONCURRENCY: usize = 16;
/// Items at rest whose time has come that one round polls. The others wait for the next one.
const RESTING_MAX: usize = 256;
/// How long an item is polled in every round after its last wake-up.
const WAKE_TIME: Duration = Duration::from_secs(10);
/// Interval between two polls of an item that waits: for payments, or for the end of what an operator
/// has to look at.
const WAITING_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between two polls of an open item that rests.
const RESTING_POLL_INTERVAL: Duration = Duration::from_secs(3600);
/// The same where a wake-up can be lost, also for one that is closed.
const BRIEF_POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Interval between two looks for what is due by the clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between two attempts to archive an item. Each reads all of its orders.
const ARCHIVE_RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Shortest time between two consolidations of an item: each costs a transfer from every segment.
const CONSOLIDATION_INTERVAL: Duration = Duration::from_millis(100);
/// Different numbers of units that are remembered for an item between two rounds. Orders repeat
/// their requests, so none is lost for good.
const REQUESTS_MAX: usize = 64;

/// State of an item that is kept between rounds.
struct Watched {
    outboxes: Outboxes,
    invariant: Invariant,
    home_check: HomeCheck,
    error_latch: ErrorLatch,
    pace: Pace,
    consolidated: Option<Instant>,
    archive: ArchiveAttempts,
}

/// When an item is polled next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// In the next round.
    Round,
    /// After [`WAITING_POLL_INTERVAL`].
    Wait,
    /// Nothing is to be done for it until something changes.
    Rest,
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
        Self {
            outboxes: Outboxes::default(),
            invariant: Invariant::default(),
            home_check: HomeCheck::default(),
            error_latch: ErrorLatch::new("reconciling an item", ERRORS),
            pace: Pace::default(),
            consolidated: None,
            archive: ArchiveAttempts::default(),
        }
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

/// Numbers of units that waiting orders need in one segment, by item.
type ConsolidationRequests = HashMap<ItemId, BTreeSet<u64>>;

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let error_latch = ErrorLatch::new("a round of the reconcile loop", ERRORS);
    let (mut rounds, mut requests) = (Rounds::default(), ConsolidationRequests::new());
    let mut incoming = reconciler.stock.consolidation_requests();
    loop {
        match rounds.reconcile_due(&reconciler, &requests).await {
            Ok(()) => error_latch.recovered(),
            Err(error) => error_latch.failed(&error),
        }
        requests.clear();
        tokio::select! {
            () = reconciler.stop.cancelled() => return,
            () = tokio::time::sleep(reconciler.settings.poll_interval) => {}
            Some(request) = incoming.recv() => take_in(&mut requests, request),
        }
        while let Ok(request) = incoming.try_recv() {
            take_in(&mut requests, request);
        }
    }
}

/// `None`: requests may have been missed. Orders repeat them.
fn take_in(requests: &mut ConsolidationRequests, request: Option<(ItemId, u64)>) {
    if let Some((item, units)) = request {
        note(requests, item, units);
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

/// What the loop keeps between two rounds.
#[derive(Default)]
struct Rounds {
    items: LiveItems,
    watched: HashMap<ItemId, Watched>,
    rota: Rota<ItemId>,
    /// When it was last looked for what is due by the clock.
    clock_looked: Option<Instant>,
}

impl Rounds {
    async fn reconcile_due(
        &mut self,
        reconciler: &Arc<Reconciler>,
        requests: &ConsolidationRequests,
    ) -> Result<(), ReconcilerError> {
        let now = Instant::now();
        let woken = reconciler.woken.take();
        self.wake(&woken, now);
        let mut open: HashMap<ItemId, Vec<Transfer>> = HashMap::new();
        for transfer in reconciler.ledger.open_transfers(None).await? {
            let of_item = open.entry(transfer.item.clone()).or_default();
            of_item.push(transfer);
        }
        // The items are read before their segments: a change in between is one that does not persist.
        let changes = self.items.refresh(&*reconciler.ledger).await?;
        for id in &changes.changed {
            self.rota.rest(id, Some(now), now);
        }
        for id in &changes.gone {
            self.forget(reconciler, id);
        }
        let by_clock = self.due_by_clock(reconciler, now);
        let mut ids: HashSet<_> = self.rota.due(now, RESTING_MAX).into_iter().collect();
        ids.extend(
            open.keys()
                .chain(requests.keys())
                .chain(by_clock.keys())
                .cloned(),
        );
        let mut due = Vec::new();
        for id in ids {
            let Some(item) = self.items.get(&id) else {
                self.forget(reconciler, &id);
                continue;
            };
            let (end, wave) = by_clock.get(&id).cloned().unwrap_or((End::None, false));
            let due_item = DueItem {
                item: item.clone(),
                end,
                wave,
                transfers: open.remove(&id).unwrap_or_default(),
                wanted: wanted(requests, &id, &item.config).unwrap_or(0),
            };
            let watched = self.watched.remove(&id).unwrap_or_else(Watched::new);
            due.push((due_item, watched));
        }
        let reconciled = stream::iter(due)
            .map(|(due_item, watched)| reconcile_and_latch(reconciler, due_item, watched))
            .buffer_unordered(ITEM_CONCURRENCY);
        let reconciled: Vec<_> = reconciled.collect().await;
        for (id, watched, next) in reconciled {
            self.plan(reconciler, &id, next, woken.hears);
            self.watched.insert(id, watched);
        }
        Ok(())
    }

    fn wake(&mut self, woken: &Woken, now: Instant) {
        for id in &woken.items {
            self.rota.wake(id, now + WAKE_TIME);
        }
        if woken.missed || !woken.hears {
            self.rota.look_everywhere(now);
        }
    }

    fn forget(&mut self, reconciler: &Reconciler, id: &ItemId) {
        self.rota.remove(id);
        self.watched.remove(id);
        reconciler.audits.forget(id);
    }

    /// What the clock has made due: ends of items, and waves.
    fn due_by_clock(
        &mut self,
        reconciler: &Reconciler,
        now: Instant,
    ) -> HashMap<ItemId, (End, bool)> {
        let interval = CLOCK_INTERVAL.min(reconciler.settings.poll_interval * 4);
        if self
            .clock_looked
            .is_some_and(|looked| now < looked + interval)
        {
            return HashMap::new();
        }
        self.clock_looked = Some(now);
        let time = (reconciler.settings.clock)();
        let due = self.items.iter().filter_map(|item| {
            let attempts = self.watched.get(&item.id).map(|watched| &watched.archive);
            let end = End::of(reconciler, item, attempts, now);
            let wave = waves::is_due(item, time);
            (end != End::None || wave).then(|| (item.id.clone(), (end, wave)))
        });
        due.collect()
    }

    fn plan(&mut self, reconciler: &Reconciler, id: &ItemId, next: Next, hears: bool) {
        let now = Instant::now();
        let is_closed = self.items.get(id).is_none_or(|item| {
            matches!(item.config.state, ItemState::Closed | ItemState::Archived)
        });
        let pause = match next {
            Next::Round => return self.rota.wake(id, now),
            Next::Wait => Some(WAITING_POLL_INTERVAL),
            Next::Rest if !hears => Some(Duration::ZERO),
            Next::Rest if reconciler.stock.may_lose_messages() => Some(BRIEF_POLL_INTERVAL),
            Next::Rest if is_closed => None,
            Next::Rest => Some(RESTING_POLL_INTERVAL),
        };
        let next = pause.map(|pause| now + spread(id, pause));
        self.rota.rest(id, next, now);
    }
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
    fn of(
        reconciler: &Reconciler,
        item: &LiveItem,
        attempts: Option<&ArchiveAttempts>,
        now: Instant,
    ) -> Self {
        let (settings, time) = (&reconciler.settings, (reconciler.settings.clock)());
        if close::is_due(&item.config, reconciler.close_delay(), time) {
            return Self::Close;
        }
        if attempts.is_some_and(|attempts| !attempts.is_due(now)) {
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
) -> (ItemId, Watched, Next) {
    // A wave that cannot be added, because clocks differ, must not keep the item from its repair.
    let waved = if due_item.wave && due_item.item.config.state != ItemState::Archived {
        waves::add(reconciler, &due_item.item.id).await
    } else {
        Ok(())
    };
    let reconciled = reconcile(reconciler, &due_item, &mut watched).await;
    let next = *reconciled.as_ref().unwrap_or(&Next::Round);
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
        end,
        transfers,
        wanted,
        ..
    } = due_item;
    let (id, settings) = (&item.id, &item.config);
    if item.config.state == ItemState::Archived {
        archive_item(reconciler, id, "reconciler", watched).await?;
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
    match end {
        End::Close => close::close(reconciler, id).await?,
        End::Archive(actor) => {
            watched.archive.last = Some(Instant::now());
            if archive::is_due(reconciler, item).await? {
                archive_item(reconciler, id, actor, watched).await?;
            }
        }
        End::None | End::RemoveKeys => {}
    }
    // Units that are to be moved have to wait for the pace of the sale.
    Ok(if is_uneven { Next::Round } else { next })
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
