//! Audits of what has changed since the last audit of an item, in place of a walk over all of its
//! orders.
//!
//! A walk reads a million orders or two a second, so the orders of a small item are walked whenever
//! it has changed: that also finds those that were changed by hand. A large item would be read all
//! the time while a few of its orders change.

use domain::ItemId;
use jiff::Timestamp;

use crate::{Reconciler, ReconcilerError};

/// Whether such an audit was good. Otherwise all orders are to be walked.
pub(super) async fn audit(
    reconciler: &Reconciler,
    id: &ItemId,
    time: Timestamp,
) -> Result<bool, ReconcilerError> {
    let (stock, ledger) = (&reconciler.stock, &*reconciler.ledger);
    let walked = reconciler.settings.audit_walked;
    let Some(found) = audit::audit_changes(stock, ledger, id, time, walked).await? else {
        return Ok(false);
    };
    metrics::counter!("stockade_change_audits_total").increment(1);
    let audits = &reconciler.audits;
    audits.show_found(id, &found.report);
    ledger.note_sums(id, &found.compared).await?;
    audits.update(id, |audited| {
        audited.compared = Some(found.compared.audit.revision);
    });
    Ok(true)
}
