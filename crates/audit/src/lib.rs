//! The audit: checks the conservation invariant of an item and of its segments during the sale.
//!
//! For each segment it takes one snapshot of Redis (available units and the entries that the ledger
//! has not recorded, at one moment) and one ledger row, and compares:
//!
//! > available(Redis) = available(ledger, at its checkpoint)
//! >     + effects of the entries behind the checkpoint
//!
//! For the item: stock = sum over segments of (available + held + confirmed + returning) + units in
//! transit. Any difference is drift.
//!
//! All of this reads a handful of rows, however many orders there are ([`audit()`]). That the rows
//! agree with the orders is what a full audit checks ([`full_audit`]): it reads every order of the
//! item. Every change that the services make to an order changes its row in the same transaction.
//! So orders that agreed with the rows once agree with them still, unless they were changed past
//! the ledger's code. After a full audit, one of what has changed ([`audit_changes`]) compares the
//! rows with the orders that have changed since.
//!
//! This crate only reads. It must not depend on HTTP, key names or table names, and never changes
//! anything.

mod archive;
mod changes;
mod follow;
mod report;
mod snapshot;

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Instant,
};

use domain::{ItemId, ItemState};
use futures::future::try_join_all;
use jiff::Timestamp;
use ledger::{
    AuditResult, ComparedSums, FailedAudit, GoodAudit, ItemTotals, Ledger, LedgerError, Pace,
    SegmentRow, WithoutPause,
};
use stock::{Stock, StockError};

pub use archive::{
    Against, Archivable, CHANGED, ReadOrders, against_archive, archivable, read_orders,
};
pub use changes::{ChangesAudit, audit_changes};
pub use follow::{Outboxes, Unrecorded};
pub use report::{AuditReport, OrdersChecked, OrdersFault, SegmentReport};
pub use snapshot::Snapshot;

/// Why an audit failed.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// Reading a segment from Redis failed.
    #[error("failed to read the stock")]
    Stock(#[from] StockError),
    /// Reading the ledger failed.
    #[error("failed to read the ledger")]
    Ledger(#[from] LedgerError),
    /// The ledger has a final audit that this release cannot read.
    #[error("failed to read the final audit")]
    FinalAudit(#[from] serde_json::Error),
}

/// Audits the item without a walk over its orders. `None`: the item does not exist. An archived
/// item has its final audit.
///
/// Each segment has its own snapshot: its row and immediately afterwards its outbox. The snapshot
/// is repeated if the recorder came in between. What only the orders can tell comes from the last
/// full audit: [`AuditReport::orders_checked`] says which, and whether the rows are still those
/// that it has compared with the orders.
pub async fn audit(
    stock: &Stock,
    ledger: &dyn Ledger,
    item: &ItemId,
) -> Result<Option<AuditReport>, AuditError> {
    if let Some(last) = ledger.final_audit(item).await? {
        return AuditReport::from_final(last).map(Some);
    }
    // The results are read before the rows: a result that comes in between only makes the report
    // say less than it could.
    let last = ledger.last_audits(item).await?;
    let snapshots = snapshots(stock, ledger, item).await?;
    let rows = ledger.item_rows(item).await?;
    // If it was archived in between, the snapshots may lack segments.
    match rows.filter(|rows| rows.item.state != ItemState::Archived) {
        Some(rows) => Ok(Some(AuditReport::of_rows(&rows, &last, &snapshots))),
        None => final_report(ledger, item).await,
    }
}

/// A full audit: the report, and what the ledger is to remember of it.
#[derive(Debug)]
pub struct FullAudit {
    /// The report.
    pub report: AuditReport,
    /// `None`: the item is archived, and this is its final audit.
    pub result: Option<AuditResult>,
    /// What the orders add up to, for audits of what changes from here on. `None`: it is not good,
    /// or the ledger cannot tell what changes.
    pub compared: Option<ComparedSums>,
}

/// Audits the item like [`audit`], and compares its rows with all of its orders. `None`: the item
/// does not exist. An archived item has its final audit. `at` is the time of its beginning.
///
/// The rows and the orders come from one snapshot of the ledger, which is read in pieces. It may
/// take long; `pace` is told how far it is.
pub async fn full_audit(
    stock: &Stock,
    ledger: &dyn Ledger,
    item: &ItemId,
    at: Timestamp,
    pace: &dyn Pace,
) -> Result<Option<FullAudit>, AuditError> {
    if let Some(last) = ledger.final_audit(item).await? {
        return AuditReport::from_final(last)
            .map(FullAudit::archived)
            .map(Some);
    }
    if let Some(audited) = live_audit(stock, ledger, item, at, pace).await? {
        return Ok(Some(audited));
    }
    Ok(final_report(ledger, item).await?.map(FullAudit::archived))
}

/// The report of a full audit that does not pause, and of which the ledger remembers nothing.
pub async fn full_report(
    stock: &Stock,
    ledger: &dyn Ledger,
    item: &ItemId,
) -> Result<Option<AuditReport>, AuditError> {
    let audited = full_audit(stock, ledger, item, Timestamp::now(), &WithoutPause).await?;
    Ok(audited.map(|audited| audited.report))
}

/// A full audit of an item that is not archived. `None`: the item does not exist, or it is
/// archived.
pub async fn live_audit(
    stock: &Stock,
    ledger: &dyn Ledger,
    item: &ItemId,
    at: Timestamp,
    pace: &dyn Pace,
) -> Result<Option<FullAudit>, AuditError> {
    let started = Instant::now();
    let last = ledger.last_audits(item).await?;
    let snapshots = snapshots(stock, ledger, item).await?;
    let totals = ledger.walk(item, pace).await?;
    // If it was archived in between, the snapshots may lack segments.
    let Some(totals) = totals.filter(|totals| totals.item.state != ItemState::Archived) else {
        return Ok(None);
    };
    let ended = later(at, started);
    let audited = FullAudit::of_orders(totals, &snapshots, last.good, [at, ended]);
    Ok(Some(audited))
}

/// The time now, by a clock that showed `at` when this began.
fn later(at: Timestamp, began: Instant) -> Timestamp {
    at.checked_add(began.elapsed()).unwrap_or(at)
}

/// Times as the ledger keeps them.
fn in_ms(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

impl FullAudit {
    /// Stores what the ledger is to remember. Without it, the next audit of the reconciler would read all
    /// orders again.
    pub async fn store(&self, ledger: &dyn Ledger, item: &ItemId) -> Result<(), LedgerError> {
        if let Some(result) = self.result {
            ledger.note_audit(item, result).await?;
        }
        if let Some(compared) = &self.compared {
            ledger.note_sums(item, compared).await?;
        }
        Ok(())
    }

    /// Of all orders, in an audit from `began` to `ended`. `good` is the last good one before it.
    fn of_orders(
        totals: ItemTotals,
        snapshots: &[Snapshot],
        good: Option<GoodAudit>,
        times: [Timestamp; 2],
    ) -> Self {
        let times = times.map(in_ms);
        let report = AuditReport::of_orders(&totals, snapshots, good, times);
        let result = match report.orders_checked.fault {
            Some(OrdersFault {
                at,
                miscounted,
                oversold,
            }) => AuditResult::Failed(FailedAudit {
                at,
                miscounted,
                oversold,
            }),
            None => AuditResult::Good(GoodAudit {
                at: times[0],
                revision: revision(&totals.segments),
            }),
        };
        let compared = match result {
            AuditResult::Good(audit) => totals.sums.map(|sums| ComparedSums { audit, sums }),
            AuditResult::Failed(_) => None,
        };
        Self {
            report,
            result: Some(result),
            compared,
        }
    }

    fn archived(report: AuditReport) -> Self {
        Self {
            report,
            result: None,
            compared: None,
        }
    }
}

/// There is no item, or it was archived in between.
async fn final_report(
    ledger: &dyn Ledger,
    item: &ItemId,
) -> Result<Option<AuditReport>, AuditError> {
    let last = ledger.final_audit(item).await?;
    last.map(AuditReport::from_final).transpose()
}

/// A number that changes when a counter or the version of a row changes. It is meant for one
/// release: another one may get another number from the same rows.
pub fn revision<'r>(rows: impl IntoIterator<Item = &'r SegmentRow>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for row in rows {
        let counters = [row.available, row.held, row.confirmed, row.returning];
        (row.key.segment, row.version, row.allocated, counters).hash(&mut hasher);
    }
    hasher.finish()
}

/// Takes a snapshot of every segment of the item, to check the invariant of each. It is cheap: it
/// reads no orders.
pub async fn snapshots(
    stock: &Stock,
    ledger: &dyn Ledger,
    item: &ItemId,
) -> Result<Vec<Snapshot>, AuditError> {
    let rows = ledger.segments(item).await?;
    let snapshots = rows
        .into_iter()
        .map(|row| snapshot::take(stock, ledger, row));
    try_join_all(snapshots).await
}
