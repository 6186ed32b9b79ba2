//! Whether an item can be archived, and the final audit that it is archived with.

use std::time::Instant;

use domain::{Item, ItemId, ItemState};
use jiff::Timestamp;
use ledger::{Archival, ItemTotals, LastAudits, Ledger, Pace, SegmentRow};
use stock::Stock;

use crate::{AuditError, AuditReport, FullAudit, Snapshot};

/// What has to be known to archive an item.
#[derive(Debug)]
pub enum Archivable {
    /// It can be archived as the audit has found it.
    Yes(Box<Archival>),
    /// It cannot.
    No(Against),
    /// It is archived.
    Already,
}

/// What stands against an archive.
#[derive(Debug)]
pub struct Against {
    /// The reasons, in words.
    pub reasons: Vec<String>,
    /// The audit, unless the orders were not read or were read too early.
    pub audited: Option<Box<FullAudit>>,
}

/// The orders of a closed item, as a final audit has read them.
#[derive(Debug, Clone)]
pub struct ReadOrders {
    /// When they were read, from and to.
    times: [Timestamp; 2],
    totals: ItemTotals,
}

/// What stands against an archive whose orders were read too early: they are to be read again.
pub const CHANGED: &str = "the item has changed since its orders were read";

/// What stands against the archive of the item by its rows, without a walk over its orders; nothing if
/// it is archived. The archive itself reads all orders. So a fault that an earlier audit has found in them
/// does not stand against it: it may be mended. `None`: there is no such item.
pub async fn against_archive(
    stock: &Stock,
    ledger: &dyn Ledger,
    id: &ItemId,
) -> Result<Option<Vec<String>>, AuditError> {
    let Some(item) = ledger.item(id).await? else {
        return Ok(None);
    };
    match item.state {
        ItemState::Archived => return Ok(Some(Vec::new())),
        ItemState::Open | ItemState::Paused => return Ok(Some(vec![close_first(&item)])),
        ItemState::Closed => {}
    }
    let transfers = ledger.open_transfers(Some(id)).await?.len();
    let snapshots = crate::snapshots(stock, ledger, id).await?;
    let Some(rows) = ledger.item_rows(id).await? else {
        return Ok(None);
    };
    // If it was archived in between, the snapshots may lack segments.
    if rows.item.state == ItemState::Archived {
        return Ok(Some(Vec::new()));
    }
    let report = AuditReport::of_rows(&rows, &LastAudits::default(), &snapshots);
    Ok(Some(reasons(&item, &report, transfers, &snapshots)))
}

/// Reads the orders of the item, if it is closed. `at` is the time of the beginning.
pub async fn read_orders(
    ledger: &dyn Ledger,
    id: &ItemId,
    at: Timestamp,
    pace: &dyn Pace,
) -> Result<Option<ReadOrders>, AuditError> {
    let item = ledger.item(id).await?;
    if item.is_none_or(|item| item.state != ItemState::Closed) {
        return Ok(None);
    }
    let began = Instant::now();
    let totals = ledger.walk(id, pace).await?;
    let ended = crate::later(at, began);
    Ok(totals.map(|totals| ReadOrders {
        times: [at, ended],
        totals,
    }))
}

/// Audits the item for its archive by `actor`, who holds the item's lock under `token`. The orders were
/// read before ([`read_orders`]), without the lock, because that takes long: rows that have changed
/// since stand against the archive. Only the archival itself decides: what is found here may change at
/// any moment. `None`: there is no such item.
pub async fn archivable(
    stock: &Stock,
    ledger: &dyn Ledger,
    id: &ItemId,
    actor: &str,
    token: u64,
    orders: Option<ReadOrders>,
) -> Result<Option<Archivable>, AuditError> {
    // The item and the rows are read first, and the archival compares them with those that it
    // locks.
    let Some(item) = ledger.item(id).await? else {
        return Ok(None);
    };
    match item.state {
        ItemState::Archived => return Ok(Some(Archivable::Already)),
        ItemState::Open | ItemState::Paused => return Ok(Some(no(close_first(&item)))),
        ItemState::Closed => {}
    }
    let transfers = ledger.open_transfers(Some(id)).await?.len();
    let last = ledger.last_audits(id).await?;
    let snapshots = crate::snapshots(stock, ledger, id).await?;
    let rows: Vec<SegmentRow> = snapshots.iter().map(|found| found.row.clone()).collect();
    let is_same = |read: &ReadOrders| read.totals.segments == rows && read.totals.item == item;
    let Some(ReadOrders { times, totals }) = orders.filter(is_same) else {
        return Ok(Some(no(CHANGED.into())));
    };
    let audited = FullAudit::of_orders(totals, &snapshots, last.good, times);
    let reasons = reasons(&item, &audited.report, transfers, &snapshots);
    if !reasons.is_empty() {
        let audited = Some(Box::new(audited));
        return Ok(Some(Archivable::No(Against { reasons, audited })));
    }
    Ok(Some(Archivable::Yes(Box::new(Archival {
        report: audited.report.to_json(),
        item,
        rows,
        actor: actor.to_owned(),
        token,
    }))))
}

fn no(reason: String) -> Archivable {
    Archivable::No(Against {
        reasons: vec![reason],
        audited: None,
    })
}

fn close_first(item: &Item) -> String {
    format!("the item is {}, close it first", item.state)
}

/// What stands against the archive of a closed item.
fn reasons(
    item: &Item,
    report: &AuditReport,
    transfers: usize,
    snapshots: &[Snapshot],
) -> Vec<String> {
    let config = item.into();
    let is_not_closed = |found: &&Snapshot| {
        let inspection = found.inspection.as_ref();
        !inspection.is_some_and(|segment| segment.is_set_as(&config) && segment.repairing.is_none())
    };
    let unrecorded: usize = snapshots.iter().map(|found| found.unrecorded.entries).sum();
    let not_closed = snapshots.iter().filter(is_not_closed).count();
    let counts = [
        (report.held, "units of held orders"),
        (report.returning, "units of ended orders on their way back"),
        (transfers as u64, "open transfers"),
        (unrecorded as u64, "outbox entries that are not recorded"),
        (not_closed as u64, "segments that are not closed in Redis"),
    ];
    let open = counts.iter().filter(|(number, _)| *number > 0);
    let mut reasons: Vec<_> = open
        .map(|(number, what)| format!("{number} {what}"))
        .collect();
    if !report.ok {
        reasons.push(format!(
            "the audit is not ok: oversold {}, drift {}",
            report.oversold, report.drift
        ));
    }
    reasons
}
