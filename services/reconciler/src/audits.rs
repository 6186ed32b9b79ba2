//! Full audits: compares the orders of items with their rows, in a task of its own, so that no
//! repair or transfer waits for the sums.
//!
//! Such an audit reads every order of an item, in pieces (`walks.rs`). So an item is audited again
//! only when one of its rows has changed since its last good audit, at most once per
//! `audit_interval`, or when that audit is old (`full_audit_interval`). Of a large item only the
//! orders that have changed are read (`changes.rs`), until the audit is old. The ledger has the last
//! good audits: a new process, and every other reconciler, goes on from there. Every transition and
//! every recorded entry changes a row in the transaction that changes the orders. What this does
//! not see, until the audit is old, is a change of orders that bypasses the ledger's code. The audit
//! of an item that is closed and settled does not get old: the next one is that of its archive.
//!
//! An item whose rows count no units of orders is hardly ever wrong. Shops create, change and close
//! thousands of them at once, so their audits are spread over an hour.

mod changes;
mod walks;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use audit::{AuditReport, FullAudit};
use domain::ItemId;
use jiff::{SignedDuration, Timestamp};
use ledger::{AuditResult, GoodAudit, NewJournalEntry, Pace};
use serde_json::json;
use supervision::{Calendar, ErrorLatch, spread};

use self::walks::{Progress, Walks};
use crate::{
    ERRORS, Reconciler, ReconcilerError,
    item_gauges::{ItemGauge, ItemGauges},
};

pub(crate) use self::walks::BoundedPace;

/// Longest time between two looks at which audits are due.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The next audit of an item that changes all the time begins after so many times the time that the
/// last one took.
const REPEAT_FACTOR: u32 = 20;

/// An item that has no orders, or is settled, is audited after about so many intervals.
const QUIET_FACTOR: u32 = 60;

/// Audits that one of the walks begins in an interval, at most: ten a second of both. A walk costs
/// some statements also where there are no orders, and all items may have changed at once.
const AUDITS_PER_INTERVAL_MAX: u32 = 300;

/// What is known of the audits of the items, for the reconcile loop and the task.
#[derive(Default)]
pub(crate) struct Audits {
    items: Mutex<Items>,
    /// What operators see of the items.
    pub gauges: ItemGauges,
    walks: Progress,
}

#[derive(Default)]
struct Items {
    audited: HashMap<ItemId, Audited>,
    /// When it is looked whether an audit of the item is due.
    looks: Calendar<ItemId, Instant>,
}

/// What the reconcile loop has seen of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Revision of its rows.
    pub revision: u64,
    /// Units that the loop cannot explain.
    pub drift: u64,
    /// Whether its rows count units of orders.
    pub has_orders: bool,
    /// Whether it is closed, and no order of it waits for anything.
    pub is_settled: bool,
}

impl Seen {
    /// Whether the item is audited within an interval of its change. Those that sell must not wait
    /// for thousands that are over, or have not begun.
    fn is_soon(&self) -> bool {
        self.has_orders && !self.is_settled
    }
}

/// What is known of one item.
struct Audited {
    /// What the reconcile loop has seen last. An item that had orders once has them.
    seen: Seen,
    /// Units by which the orders and the rows differ, or which are oversold.
    miscounted: u64,
    good: Option<GoodAudit>,
    /// Revision of the rows that were last compared with the orders that had changed.
    compared: Option<u64>,
    /// When the next audit may begin.
    next: Instant,
}

impl Audits {
    fn items(&self) -> MutexGuard<'_, Items> {
        // No code panics while it holds the lock.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the reconcile loop has found, and shows all drift of the item.
    pub(crate) fn note(&self, id: &ItemId, seen: Seen, interval: Duration) {
        let mut items = self.items();
        let Items { audited, looks } = &mut *items;
        let audited = audited
            .entry(id.clone())
            .or_insert_with(|| Audited::new(id, seen, interval));
        audited.see(seen, interval);
        looks.set(id, audited.look());
        self.show_drift(id, audited);
    }

    /// Shows all units of the item that violate the conservation invariant.
    fn show_drift(&self, id: &ItemId, audited: &Audited) {
        let drift = audited.seen.drift + audited.miscounted;
        self.gauges.set(id, [(ItemGauge::Drift, drift)]);
    }

    /// Shows what an audit that compares orders has found.
    fn show_found(&self, id: &ItemId, report: &AuditReport) {
        let found = [
            (ItemGauge::Oversold, report.oversold),
            (ItemGauge::RefundsDue, report.refund_due_orders),
        ];
        self.gauges.set(id, found);
    }

    /// Shows the gauges of the items again.
    pub(crate) fn refresh_gauges(&self) {
        let items = self.items();
        self.gauges.refresh(|id| items.audited.contains_key(id));
    }

    /// Units of the item by which the orders and the rows differ, or which are oversold.
    pub(crate) fn miscounted(&self, id: &ItemId) -> u64 {
        let items = self.items();
        let audited = items.audited.get(id);
        audited.map_or(0, |audited| audited.miscounted)
    }

    /// Forgets an item that is not live any more.
    pub(crate) fn forget(&self, id: &ItemId) {
        let mut items = self.items();
        items.audited.remove(id);
        items.looks.set(id, None);
        self.gauges.leave(id);
    }

    /// The items to audit, those that have waited longest first. Those of which only the age of
    /// the last audit can make another one due are looked at again after about an interval.
    fn due(
        &self,
        now: Instant,
        time: Timestamp,
        interval: Duration,
        full_interval: Duration,
    ) -> Vec<ItemId> {
        let mut items = self.items();
        let Items { audited, looks } = &mut *items;
        let is_covered = |id: &ItemId| {
            let audited = audited.get(id);
            audited.is_none_or(|audited| audited.is_covered(id, time, full_interval))
        };
        let (covered, due): (Vec<_>, Vec<_>) = looks.due(now).cloned().partition(is_covered);
        for id in covered {
            looks.set(&id, Some(now + spread(&id, interval)));
        }
        due
    }

    fn update(&self, id: &ItemId, change: impl FnOnce(&mut Audited)) {
        let mut items = self.items();
        let Items { audited, looks } = &mut *items;
        if let Some(audited) = audited.get_mut(id) {
            change(audited);
            looks.set(id, audited.look());
        }
    }
}

impl Audited {
    fn new(id: &ItemId, seen: Seen, interval: Duration) -> Self {
        Self {
            seen,
            miscounted: 0,
            good: None,
            compared: None,
            next: Instant::now() + wait(id, seen.is_soon(), interval),
        }
    }

    /// Takes in what was seen. With the first orders, the item is due like any other.
    fn see(&mut self, seen: Seen, interval: Duration) {
        let has_orders = seen.has_orders || self.seen.has_orders;
        let seen = Seen { has_orders, ..seen };
        if seen.is_soon() && !self.seen.is_soon() {
            self.next = self.next.min(Instant::now() + interval);
        }
        self.seen = seen;
    }

    /// Whether the rows as they are were compared with the orders, and no walk is due.
    fn is_covered(&self, id: &ItemId, time: Timestamp, full_interval: Duration) -> bool {
        self.is_compared() && !self.is_walk_due(id, time, full_interval)
    }

    /// Whether the rows as they are were compared with the orders.
    fn is_compared(&self) -> bool {
        let revisions = [self.good.map(|good| good.revision), self.compared];
        revisions.contains(&Some(self.seen.revision))
    }

    /// When it is looked whether an audit is due. `None`: none is, until a row changes.
    fn look(&self) -> Option<Instant> {
        let is_over = self.seen.is_settled && self.is_compared() && self.last_good().is_some();
        (!is_over).then_some(self.next)
    }

    /// The last audit, if it still stands.
    fn last_good(&self) -> Option<GoodAudit> {
        self.good.filter(|_| self.miscounted == 0)
    }

    /// Whether nothing but a walk over all orders will do.
    fn is_walk_due(&self, id: &ItemId, time: Timestamp, full_interval: Duration) -> bool {
        let is_old = |good| !self.seen.is_settled && is_old(id, good, time, full_interval);
        self.last_good().is_none_or(is_old)
    }
}

/// The pause before an audit of the item.
fn wait(id: &ItemId, is_soon: bool, interval: Duration) -> Duration {
    match is_soon {
        true => interval,
        false => spread(id, interval * QUIET_FACTOR),
    }
}

/// Whether the audit is so old that the item is audited again without a change. The time differs
/// from item to item, between half of the interval and one and a half: audits that were made
/// together are not repeated together.
fn is_old(id: &ItemId, good: GoodAudit, time: Timestamp, full_interval: Duration) -> bool {
    let lasts = spread(id, full_interval);
    time.duration_since(good.at) >= SignedDuration::try_from(lasts).unwrap_or(SignedDuration::MAX)
}

pub(crate) async fn run(reconciler: Arc<Reconciler>) {
    let error_latch = ErrorLatch::new("auditing items", ERRORS);
    let interval = reconciler.settings.audit_interval;
    let look_interval = (interval / 4).min(LOOK_INTERVAL);
    let (mut refunds, mut look) = (Instant::now(), Instant::now() + look_interval);
    let mut walks = Walks::new(&reconciler);
    let mut is_well = true;
    while let Some(mut audited) = walks.next_until(look).await {
        if refunds <= Instant::now() {
            refunds = Instant::now() + interval;
            audited = audited.and(show_refunds_due(&reconciler).await);
        }
        if let Err(error) = audited {
            error_latch.failed(&error);
            is_well = false;
        }
        if look <= Instant::now() {
            look = Instant::now() + look_interval;
            walks.look();
            if std::mem::replace(&mut is_well, true) {
                error_latch.recovered();
            }
        }
    }
}

/// Refunds change no row of a segment. Their orders and their journal entries have small indexes.
///
/// A refund may fail long after its item was archived, and an item is archived while its gauge
/// is 1. So this shows all items that have any, live or not.
async fn show_refunds_due(reconciler: &Reconciler) -> Result<(), ReconcilerError> {
    let ledger = &reconciler.ledger;
    let due = ledger.refunds_due_by_item().await?.into_iter().collect();
    let failed = ledger.failed_refunds_by_item().await?;
    let failed = failed.into_iter().collect();
    reconciler.audits.gauges.set_refunds(&due, &failed);
    Ok(())
}

/// Audits the item, and pauses for as long as its work was worth.
async fn audit_paced(reconciler: &Reconciler, id: &ItemId) -> Result<(), ReconcilerError> {
    let (settings, audits) = (&reconciler.settings, &reconciler.audits);
    let pace = BoundedPace::new(reconciler, id);
    let audited = audit(reconciler, id, &pace).await;
    let (interval, worked) = (settings.audit_interval, pace.worked());
    audits.update(id, |audited| {
        let is_soon = audited.seen.is_soon() || audited.miscounted != 0;
        let pause = wait(id, is_soon, interval).max(worked * REPEAT_FACTOR);
        audited.next = Instant::now() + pause;
    });
    pace.rest(shortest_rest(&audited, interval)).await;
    audited.map(|_| ())
}

/// The time that an audit takes of its walk, at least. One that stands takes none: after a start
/// those of all items may stand, and the items that sell wait behind them.
fn shortest_rest(audited: &Result<Audit, ReconcilerError>, interval: Duration) -> Duration {
    match audited {
        Ok(Audit::Stands) => Duration::ZERO,
        Ok(Audit::Made) | Err(_) => interval / AUDITS_PER_INTERVAL_MAX,
    }
}

/// What became of an audit that was due.
enum Audit {
    /// The ledger has one of the rows as they are.
    Stands,
    /// It was made.
    Made,
}

async fn audit(
    reconciler: &Reconciler,
    id: &ItemId,
    pace: &dyn Pace,
) -> Result<Audit, ReconcilerError> {
    let (settings, audits) = (&reconciler.settings, &reconciler.audits);
    let time = (settings.clock)();
    // Another reconciler, or an earlier process, may have audited the rows as they are.
    let last = reconciler.ledger.last_audits(id).await?;
    let (mut is_covered, mut is_walk_due) = (false, true);
    audits.update(id, |audited| {
        audited.good = last.good.filter(|_| last.fault().is_none());
        audited.compared = last.compared.map(|compared| compared.revision);
        is_covered = audited.is_covered(id, time, settings.full_audit_interval);
        is_walk_due = audited.is_walk_due(id, time, settings.full_audit_interval);
    });
    if is_covered {
        return Ok(Audit::Stands);
    }
    if is_walk_due || !changes::audit(reconciler, id, time).await? {
        walk(reconciler, id, time, pace).await?;
    }
    Ok(Audit::Made)
}

/// A full audit.
async fn walk(
    reconciler: &Reconciler,
    id: &ItemId,
    time: Timestamp,
    pace: &dyn Pace,
) -> Result<(), ReconcilerError> {
    let (stock, ledger) = (&reconciler.stock, &*reconciler.ledger);
    let Some(audited) = audit::live_audit(stock, ledger, id, time, pace).await? else {
        return Ok(());
    };
    metrics::counter!("stockade_audits_total").increment(1);
    take_in(reconciler, id, audited).await
}

/// Shows and stores what a full audit has found.
pub(crate) async fn take_in(
    reconciler: &Reconciler,
    id: &ItemId,
    audited: FullAudit,
) -> Result<(), ReconcilerError> {
    let (audits, ledger) = (&reconciler.audits, &*reconciler.ledger);
    let report = &audited.report;
    audits.show_found(id, report);
    let miscounted = report.miscounted + report.oversold;
    if miscounted != 0 && miscounted != audits.miscounted(id) {
        report_fault(reconciler, id, report).await?;
    }
    let stored = audited.store(ledger, id).await;
    audits.update(id, |known| {
        (known.miscounted, known.good) = (miscounted, good_of(audited.result));
        audits.show_drift(id, known);
    });
    Ok(stored?)
}

fn good_of(result: Option<AuditResult>) -> Option<GoodAudit> {
    match result {
        Some(AuditResult::Good(good)) => Some(good),
        _ => None,
    }
}

/// Logs and journals what a full audit has found wrong, once since the last good one: walks, archives and
/// other processes may find the same.
async fn report_fault(
    reconciler: &Reconciler,
    id: &ItemId,
    report: &AuditReport,
) -> Result<(), ReconcilerError> {
    tracing::error!(item = %id, miscounted = report.miscounted, oversold = report.oversold, "audit failed, orders and segment rows differ or units are oversold: run `stockade audit --full {id}`");
    let entry = NewJournalEntry {
        item: id.clone(),
        actor: "reconciler".into(),
        action: "miscounted".into(),
        token: None,
        before: json!({ "miscounted": 0, "oversold": 0 }),
        after: json!({ "miscounted": report.miscounted, "oversold": report.oversold }),
    };
    let good = report
        .orders_checked
        .at
        .map_or(0, Timestamp::as_millisecond);
    let once = format!(
        "miscounted {} oversold {} since {good}",
        report.miscounted, report.oversold
    );
    reconciler.ledger.note_once(&entry, &once).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use domain::ItemId;
    use jiff::Timestamp;
    use ledger::GoodAudit;

    use super::{Audit, Audited, Audits, QUIET_FACTOR, Seen, is_old, shortest_rest};

    const DAY: Duration = Duration::from_secs(86_400);

    fn vase() -> ItemId {
        "vase".parse().unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn seen(revision: u64, has_orders: bool) -> Seen {
        Seen {
            revision,
            drift: 0,
            has_orders,
            is_settled: false,
        }
    }

    #[test]
    fn an_item_without_orders_is_due_after_an_hour_and_with_its_first_ones_after_a_minute() {
        const MINUTE: Duration = Duration::from_secs(60);
        let (audits, id, now) = (Audits::default(), vase(), Instant::now());
        let is_due =
            |after: Duration| audits.due(now + after, at(0), Duration::ZERO, DAY) == [vase()];
        audits.note(&id, seen(7, false), MINUTE);
        assert!(!is_due(MINUTE * QUIET_FACTOR / 2 - MINUTE));
        assert!(is_due(MINUTE * QUIET_FACTOR * 2));
        audits.note(&id, seen(8, false), MINUTE);
        assert!(!is_due(MINUTE * 2), "it was closed, for example");
        audits.note(&id, seen(9, true), MINUTE);
        assert!(is_due(MINUTE * 2));
        audits.note(&id, seen(10, false), MINUTE);
        assert!(is_due(MINUTE * 2), "its orders have ended");
    }

    #[test]
    fn an_item_is_due_when_its_rows_have_changed_or_its_audit_is_old() {
        let (audits, id, now) = (Audits::default(), vase(), Instant::now());
        audits.note(&id, seen(7, true), Duration::ZERO);
        let is_due = |time: i64| {
            let due = audits.due(now + Duration::from_secs(1), at(time), Duration::ZERO, DAY);
            due == [vase()]
        };
        assert!(is_due(0), "it was never audited");
        let good = Some(GoodAudit {
            at: at(0),
            revision: 7,
        });
        let set = |change: fn(&mut Audited)| audits.update(&id, change);
        audits.update(&id, |audited| audited.good = good);
        assert!(!is_due(10) && !is_due(43_000) && is_due(130_000));
        set(|audited| audited.miscounted = 1);
        assert!(is_due(10), "until it is right again");
        set(|audited| audited.miscounted = 0);
        audits.note(&id, seen(8, true), Duration::ZERO);
        assert!(is_due(10), "a row has changed");
        set(|audited| audited.compared = Some(8));
        assert!(!is_due(10), "what has changed was compared");
        assert!(is_due(130_000), "and all orders are walked all the same");
        audits.note(&id, seen(9, true), Duration::ZERO);
        assert!(is_due(10));
        let before = audits.due(now - DAY, at(10), Duration::ZERO, DAY);
        assert!(before.is_empty(), "not so soon");
    }

    /// Items of which it would be looked at this moment whether an audit is due.
    fn looks(audits: &Audits, now: Instant) -> usize {
        audits.items().looks.due(now).count()
    }

    #[test]
    fn an_item_that_was_audited_is_not_looked_at_each_second() {
        const MINUTE: Duration = Duration::from_secs(60);
        let (audits, id, now) = (Audits::default(), vase(), Instant::now());
        let (soon, later) = (now + Duration::from_secs(1), now + MINUTE * 2);
        let due = |now, time| audits.due(now, at(time), MINUTE, DAY).len();
        audits.note(&id, seen(7, true), Duration::ZERO);
        assert_eq!(due(soon, 0), 1);
        audits.update(&id, |audited| audited.next = now + DAY);
        assert_eq!((looks(&audits, later), due(later, 0)), (0, 0), "it pauses");
        let good = Some(GoodAudit {
            at: at(0),
            revision: 7,
        });
        audits.update(&id, |audited| (audited.good, audited.next) = (good, now));
        assert_eq!((looks(&audits, soon), due(soon, 10)), (1, 0));
        assert_eq!(looks(&audits, soon), 0, "nothing but its age can change");
        assert_eq!(due(later, 130_000), 1, "its audit is old");
        audits.forget(&id);
        assert_eq!(looks(&audits, now + DAY), 0);
    }

    #[test]
    fn the_audit_of_a_settled_item_does_not_get_old() {
        let (audits, id, now) = (Audits::default(), vase(), Instant::now());
        let is_due = |seen: Seen| {
            audits.note(&id, seen, Duration::ZERO);
            let due = audits.due(
                now + Duration::from_secs(1),
                at(1_000_000),
                Duration::ZERO,
                DAY,
            );
            due == [vase()]
        };
        let settled = Seen {
            is_settled: true,
            ..seen(7, true)
        };
        assert!(is_due(settled), "it has changed since its last audit");
        let good = GoodAudit {
            at: at(0),
            revision: 7,
        };
        audits.update(&id, |audited| audited.good = Some(good));
        assert_eq!(looks(&audits, now + DAY), 0, "it costs nothing");
        assert!(!is_due(settled));
        assert!(is_due(seen(7, true)), "it was opened again");
    }

    #[test]
    fn audits_of_one_moment_are_repeated_at_different_times() {
        let good = GoodAudit {
            at: at(0),
            revision: 1,
        };
        let old_after = |hours: i64| {
            let is_old = |n: &u32| {
                let id = ItemId::new(format!("item-{n}")).unwrap();
                is_old(&id, good, at(hours * 3600), DAY)
            };
            (0..1000).filter(is_old).count()
        };
        assert_eq!([old_after(11), old_after(37)], [0, 1000]);
        let half = old_after(24);
        assert!((400..600).contains(&half), "{half} of 1000");
    }

    #[test]
    fn an_audit_that_stands_does_not_delay_the_next_one() {
        let minute = Duration::from_secs(60);
        assert_eq!(shortest_rest(&Ok(Audit::Stands), minute), Duration::ZERO);
        let pause = shortest_rest(&Ok(Audit::Made), minute);
        assert_eq!(pause, Duration::from_millis(200));
    }
}
