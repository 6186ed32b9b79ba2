//! The end of an item, and of what the ledger knows about a buyer.

use async_trait::async_trait;
use domain::{BuyerId, ItemId};

use crate::{Archival, Changed, Erased, FinalAudit, LedgerError};

/// What the reconciler and the order service need to end an item for good.
#[async_trait]
pub trait Archives: Send + Sync + 'static {
    /// Notes that a reconciler is to archive the item for `actor`. Reopening the item withdraws the
    /// request. Changes nothing if the item is not closed. A repeat changes nothing.
    ///
    /// `expected`: the version that the item must have. `None`: any.
    async fn request_archive(
        &self,
        id: &ItemId,
        expected: Option<u64>,
        actor: &str,
    ) -> Result<Changed, LedgerError>;

    /// Writes the final audit and archives the item, in one transaction. Returns `false`, and
    /// changes nothing, if the item is not closed and settled or has changed since the audit. A
    /// repeat changes nothing.
    ///
    /// # Errors
    ///
    /// `LedgerError::Fenced` if a higher token has claimed the item.
    async fn archive(&self, archival: &Archival) -> Result<bool, LedgerError>;

    /// Notes that the archived item has no keys in Redis any more. `token` must be the item's
    /// highest.
    async fn note_keys_removed(&self, id: &ItemId, token: u64) -> Result<(), LedgerError>;

    /// The last audit of the item. `None`: it is not archived.
    async fn final_audit(&self, id: &ItemId) -> Result<Option<FinalAudit>, LedgerError>;

    /// Replaces the buyer's name in the orders at archived items by a random one, and journals the
    /// number of orders for `actor`, there and in the service journal. Reads the orders of the
    /// buyer alone, page by page. After an error some orders may have lost the name; a repeat does the
    /// rest. A repeat after success changes no order.
    async fn erase_buyer(&self, buyer: &BuyerId, actor: &str) -> Result<Erased, LedgerError>;
}
