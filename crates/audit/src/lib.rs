//! The audit: the identity, by segment and for the item, checked while the sale runs.
//!
//! For each segment, from one look at Redis (available and the entries that the ledger does not have, at one moment) and one ledger row:
//!
//! > available(Redis) = available(ledger, at its checkpoint) + effects of the entries behind the checkpoint
//!
//! For the item: stock = sum over segments of (available + held + confirmed + returning) + units in transit. Whatever this does not explain is drift.
//!
//! This crate only looks. It must not know HTTP, a key name or a table name, and never changes anything.

mod look;
mod report;

use domain::ItemId;
use futures::future::try_join_all;
use ledger::{Ledger, LedgerError};
use stock::{Stock, StockError};

pub use look::Look;
pub use report::{AuditReport, SegmentReport};

/// Why there is no audit.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// Redis did not answer.
    #[error("the stock did not answer")]
    Stock(#[from] StockError),
    /// SQL did not.
    #[error("the ledger did not answer")]
    Ledger(#[from] LedgerError),
}

/// Audits the item. `None`: there is no such item.
///
/// Each segment is looked at by itself, its row and then at once its outbox, and once more if the recorder came in between. That the rows say
/// what the orders say is checked apart, in one snapshot of the ledger, which may take long.
pub async fn audit(
    stock: &Stock,
    ledger: &dyn Ledger,
    item: &ItemId,
) -> Result<Option<AuditReport>, AuditError> {
    let looks = look(stock, ledger, item).await?;
    let totals = ledger.totals(item).await?;
    Ok(totals.map(|totals| AuditReport::new(&totals, &looks)))
}

/// Looks at every segment of the item, for the identity of each. Cheap: it reads no orders.
pub async fn look(
    stock: &Stock,
    ledger: &dyn Ledger,
    item: &ItemId,
) -> Result<Vec<Look>, AuditError> {
    let rows = ledger.segments(item).await?;
    try_join_all(rows.into_iter().map(|row| look::look(stock, ledger, row))).await
}
