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
//! This crate only reads. It must not depend on HTTP, key names or table names, and never changes
//! anything.

mod archive;
mod follow;
mod report;
mod snapshot;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use domain::{ItemId, ItemState};
use futures::future::try_join_all;
use ledger::{Ledger, LedgerError, SegmentRow};
use stock::{Stock, StockError};

pub use archive::{Archivable, archivable};
pub use follow::{Outboxes, Unrecorded};
pub use report::{AuditReport, SegmentReport};
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

/// Audits the item. `None`: the item does not exist. An archived item has its final audit.
///
/// Each segment has its own snapshot: its row and immediately afterwards its outbox. The snapshot
/// is repeated if the recorder came in between. The rows are compared with the orders separately,
/// in one snapshot of the ledger, which may take long.
pub async fn audit(
    stock: &Stock,
    ledger: &dyn Ledger,
    item: &ItemId,
) -> Result<Option<AuditReport>, AuditError> {
    if let Some(last) = ledger.final_audit(item).await? {
        return AuditReport::from_final(last).map(Some);
    }
    if let Some((report, _)) = audit_at(stock, ledger, item).await? {
        return Ok(Some(report));
    }
    // There is no item, or it was archived in between.
    let last = ledger.final_audit(item).await?;
    last.map(AuditReport::from_final).transpose()
}

/// Audits an item that is not archived. Also returns the [`revision`] of the rows that were compared
/// with the orders. `None`: the item does not exist, or it is archived.
pub async fn audit_at(
    stock: &Stock,
    ledger: &dyn Ledger,
    item: &ItemId,
) -> Result<Option<(AuditReport, u64)>, AuditError> {
    let snapshots = snapshots(stock, ledger, item).await?;
    let Some(totals) = ledger.totals(item).await? else {
        return Ok(None);
    };
    // If it was archived in between, the snapshots may lack segments.
    if totals.item.state == ItemState::Archived {
        return Ok(None);
    }
    let report = AuditReport::new(&totals, &snapshots);
    Ok(Some((report, revision(&totals.segments))))
}

/// A number that changes when a counter or the version of a row changes. It is meant for one release:
/// another one may get another number from the same rows.
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
