//! Whether an item can be archived, and the final audit that it is archived with.

use domain::{ItemId, ItemState};
use jiff::Timestamp;
use ledger::{Archival, ItemTotals, Ledger, Pace, SegmentRow};
use stock::Stock;

use crate::{AuditError, AuditReport, Snapshot};

/// What has to be known to archive an item.
#[derive(Debug)]
pub enum Archivable {
    /// It can be archived as the audit has found it.
    Yes(Box<Archival>),
    /// It cannot, for these reasons.
    No(Vec<String>),
    /// It is archived.
    Already,
}

/// Audits the item for its archive, and reads all of its orders, with `pace`. What is found may change
/// at any moment. `None`: there is no such item.
pub async fn archivable(
    stock: &Stock,
    ledger: &dyn Ledger,
    id: &ItemId,
    actor: &str,
    token: u64,
    pace: &dyn Pace,
) -> Result<Option<Archivable>, AuditError> {
    let orders = read_orders(ledger, id, pace).await?;
    archivable_with(stock, ledger, id, actor, token, orders).await
}

/// The orders of a closed item, as a final audit has read them.
#[derive(Debug, Clone)]
pub struct ReadOrders {
    began: Timestamp,
    totals: ItemTotals,
}

/// What stands against an archive whose orders were read too early: they are to be read again.
pub const CHANGED: &str = "the item has changed since its orders were read";

/// Reads the orders of the item, if it is closed.
pub async fn read_orders(
    ledger: &dyn Ledger,
    id: &ItemId,
    pace: &dyn Pace,
) -> Result<Option<ReadOrders>, AuditError> {
    let item = ledger.item(id).await?;
    if item.is_none_or(|item| item.state != ItemState::Closed) {
        return Ok(None);
    }
    let began = Timestamp::now();
    let totals = ledger.walk(id, pace).await?;
    Ok(totals.map(|totals| ReadOrders { began, totals }))
}

/// Audits the item for its archive by `actor`, who holds the item's lock under `token`. The orders were
/// read before ([`read_orders`]), without the lock, because that takes long: rows that have changed
/// since stand against the archive. Only the archival itself decides: what is found here may change at
/// any moment. `None`: there is no such item.
pub async fn archivable_with(
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
        ItemState::Open | ItemState::Paused => {
            let reason = format!("the item is {}, close it first", item.state);
            return Ok(Some(Archivable::No(vec![reason])));
        }
        ItemState::Closed => {}
    }
    let transfers = ledger.open_transfers(Some(id)).await?.len();
    let snapshots = crate::snapshots(stock, ledger, id).await?;
    let rows: Vec<SegmentRow> = snapshots.iter().map(|found| found.row.clone()).collect();
    let is_same = |read: &ReadOrders| read.totals.segments == rows && read.totals.item == item;
    let Some(ReadOrders { began, totals }) = orders.filter(is_same) else {
        return Ok(Some(Archivable::No(vec![CHANGED.into()])));
    };
    let report = AuditReport::of_orders(&totals, &snapshots, None, [began, Timestamp::now()]);
    let config = (&item).into();
    let mut open = Vec::new();
    let mut count = |number: u64, what: &str| {
        if number > 0 {
            open.push(format!("{number} {what}"));
        }
    };
    count(report.held, "units of held orders");
    count(report.returning, "units of ended orders on their way back");
    count(transfers as u64, "open transfers");
    count(
        snapshots
            .iter()
            .map(|found| found.unrecorded.entries as u64)
            .sum(),
        "outbox entries that are not recorded",
    );
    let is_set = |found: &&Snapshot| {
        let inspection = found.inspection.as_ref();
        !inspection.is_some_and(|segment| segment.is_set_as(&config) && segment.repairing.is_none())
    };
    let not_closed = snapshots.iter().filter(is_set).count() as u64;
    count(not_closed, "segments that are not closed in Redis");
    if !report.ok {
        open.push(format!(
            "the audit is not ok: oversold {}, drift {}",
            report.oversold, report.drift
        ));
    }
    if !open.is_empty() {
        return Ok(Some(Archivable::No(open)));
    }
    Ok(Some(Archivable::Yes(Box::new(Archival {
        report: report.to_json(),
        item,
        rows,
        actor: actor.to_owned(),
        token,
    }))))
}
