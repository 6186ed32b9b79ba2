//! The audit: the identity, by segment and for the item, checked while the sale runs.
//!
//! For each segment, from one look at Redis (available and the entries that the ledger does not have, at one moment) and one ledger row:
//!
//! > available(Redis) = available(ledger, at its checkpoint) + effects of the entries behind the checkpoint
//!
//! For the item: stock = sum over segments of (available + held + confirmed). Whatever this does not explain is drift.

mod report;

use domain::ItemId;
use ledger::{ItemTotals, Ledger, SegmentRow};
use stock::{Inspection, InspectionEntries, Stock, StockError};

pub use report::{AuditReport, SegmentReport};

use crate::engine::EngineError;

/// Looks at a segment to make before its history counts as another one: the recorder may trim between our two looks.
const LOOKS: usize = 20;

/// Audits the item. `None`: there is no such item.
pub async fn audit(stock: &Stock, ledger: &dyn Ledger, item: &ItemId) -> Result<Option<AuditReport>, EngineError> {
    let mut looks = 0;
    loop {
        looks += 1;
        // The ledger first: Redis then holds what came after it.
        let Some(totals) = ledger.totals(item).await? else { return Ok(None) };
        let segments = look_at_segments(stock, &totals).await?;
        if looks == LOOKS || segments.iter().all(Look::is_anchored) {
            return Ok(Some(AuditReport::new(&totals, &segments)));
        }
    }
}

/// A segment's row and what Redis holds of it.
pub(crate) struct Look {
    pub row: SegmentRow,
    /// `None`: it is not there.
    pub inspection: Option<Inspection>,
}

impl Look {
    /// Whether the outbox continues what the row has recorded.
    pub(crate) fn is_anchored(&self) -> bool {
        let Some(inspection) = &self.inspection else { return false };
        match (self.row.checkpoint, inspection.entries.first()) {
            (None, first) => first.is_some_and(|first| matches!(first.change, domain::Change::Opened { .. })),
            (Some(checkpoint), Some(first)) => first.id == checkpoint && Some(first.fingerprint) == self.row.anchor,
            (Some(_), None) => false,
        }
    }
}

async fn look_at_segments(stock: &Stock, totals: &ItemTotals) -> Result<Vec<Look>, EngineError> {
    let mut looks = Vec::with_capacity(totals.segments.len());
    for row in &totals.segments {
        let from = row.checkpoint.map_or(InspectionEntries::All, InspectionEntries::From);
        let inspection = match stock.inspect(&row.key, from).await {
            Ok(inspection) => Some(inspection),
            Err(StockError::Missing(_)) => None,
            Err(error) => return Err(error.into()),
        };
        looks.push(Look { row: row.clone(), inspection });
    }
    Ok(looks)
}
