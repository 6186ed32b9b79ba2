//! The audit: the identity, by segment and for the item, checked while the sale runs.
//!
//! For each segment, from one look at Redis (available and the entries that the ledger does not have, at one moment) and one ledger row:
//!
//! > available(Redis) = available(ledger, at its checkpoint) + effects of the entries behind the checkpoint
//!
//! For the item: stock = sum over segments of (available + held + confirmed). Whatever this does not explain is drift.

mod report;

use domain::ItemId;
use futures::future::try_join_all;
use ledger::{Ledger, SegmentRow};
use stock::{Inspection, InspectionEntries, Stock, StockError};

pub use report::{AuditReport, SegmentReport};

use crate::engine::EngineError;

/// Looks at a segment to make before its history counts as another one: the recorder may trim between the two halves of a look.
const LOOKS: usize = 100;

/// Audits the item. `None`: there is no such item.
///
/// Each segment is looked at by itself, its row and then at once its outbox, and once more if the recorder came in between. That the rows say
/// what the orders say is checked apart, in one snapshot of the ledger, which may take long.
pub async fn audit(stock: &Stock, ledger: &dyn Ledger, item: &ItemId) -> Result<Option<AuditReport>, EngineError> {
    let segments = ledger.segments(item).await?.len();
    let looks = try_join_all((0..segments).map(|segment| look(stock, ledger, item, segment))).await?;
    let totals = ledger.totals(item).await?;
    Ok(totals.map(|totals| AuditReport::new(&totals, &looks)))
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

async fn look(stock: &Stock, ledger: &dyn Ledger, item: &ItemId, segment: usize) -> Result<Look, EngineError> {
    let mut looks = 0;
    loop {
        looks += 1;
        // The ledger first: Redis then holds what came after it.
        let row = ledger.segments(item).await?.swap_remove(segment);
        let from = row.checkpoint.map_or(InspectionEntries::All, InspectionEntries::From);
        let inspection = match stock.inspect(&row.key, from).await {
            Ok(inspection) => Some(inspection),
            Err(StockError::Missing(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let look = Look { row, inspection };
        if look.is_anchored() || looks == LOOKS {
            return Ok(look);
        }
    }
}
