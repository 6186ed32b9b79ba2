//! A segment whose history is not the one that was recorded.
//!
//! It happens after a failover to a replica that lagged, a restart without persistence, a restored backup. Nothing more of the segment may be recorded
//! then: its entries would be applied to counters that they do not follow from. Repairing it is not the recorder's business.

use domain::Entry;
use ledger::SegmentRow;

/// Says so, loudly.
pub(crate) fn report(row: &SegmentRow, found: Option<&Entry>) {
    metrics::counter!("stockade_diverged_reads_total", "item" => row.key.item.to_string()).increment(1);
    tracing::error!(
        segment = %row.key,
        checkpoint = row.checkpoint.map(tracing::field::display),
        found = found.map(|entry| tracing::field::display(entry.id)),
        "history has diverged: the outbox does not begin with what was recorded last; this segment is not recorded any further"
    );
}
