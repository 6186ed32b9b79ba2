//! Audits of what has changed since the orders were last compared with the rows.

use domain::{ItemId, ItemState};
use jiff::Timestamp;
use ledger::{ComparedSums, GoodAudit, Ledger};
use stock::Stock;

use crate::{AuditError, AuditReport, in_ms, revision};

/// An audit of what has changed. All orders of the item agree with its rows.
#[derive(Debug)]
pub struct ChangesAudit {
    /// The report. Its `at` is that of the last full audit.
    pub report: AuditReport,
    /// What the orders add up to, for the ledger.
    pub compared: ComparedSums,
}

/// Audits the item like [`live_audit`](crate::live_audit), but reads only the orders that have
/// changed since all of them were last compared with the rows. `at` is the time of its beginning.
///
/// `None`: only a full audit can tell. There was none yet, the last one had no more than `walked`
/// orders, too much has changed, or the rows differ. This audit accuses no item: a full one finds
/// what is wrong with it.
///
/// It finds whatever a full audit would find, except orders that were changed past the ledger's
/// code (`lab/models/tests/it/stock/audit/changes.rs`).
pub async fn audit_changes(
    stock: &Stock,
    ledger: &dyn Ledger,
    item: &ItemId,
    at: Timestamp,
    walked: u64,
) -> Result<Option<ChangesAudit>, AuditError> {
    let last = ledger.last_audits(item).await?;
    let Some(good) = last.good.filter(|_| last.fault().is_none()) else {
        return Ok(None);
    };
    let since = ledger.last_sums(item).await?;
    let Some(since) = since.filter(|sums| sums.orders() > walked) else {
        return Ok(None);
    };
    let snapshots = crate::snapshots(stock, ledger, item).await?;
    let totals = ledger.walk_changes(item, &since).await?;
    // If it was archived in between, the snapshots may lack segments.
    let Some(totals) = totals.filter(|totals| totals.item.state != ItemState::Archived) else {
        return Ok(None);
    };
    let began = in_ms(at);
    let mut report = AuditReport::of_orders(&totals, &snapshots, last.good, [began; 2]);
    if report.orders_checked.fault.is_some() || report.oversold > 0 {
        return Ok(None);
    }
    report.orders_checked.at = Some(good.at);
    let audit = GoodAudit {
        at: began,
        revision: revision(&totals.segments),
    };
    Ok(totals.sums.map(|sums| ChangesAudit {
        report,
        compared: ComparedSums { audit, sums },
    }))
}
