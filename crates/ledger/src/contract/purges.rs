//! Deleting the orders of old sales, and what audits have found.

use async_trait::async_trait;
use domain::{ItemId, OrderId};
use jiff::Timestamp;

use crate::{GoodAudit, LedgerError, PurgeRequest, PurgeStep};

/// What operators and the reconciler need to purge archived items.
#[async_trait]
pub trait Purges: Send + Sync + 'static {
    /// Notes for `actor` that the item's orders are to be deleted, if it was archived before
    /// `archived_before`. A repeat changes nothing.
    async fn request_purge(
        &self,
        id: &ItemId,
        archived_before: Timestamp,
        actor: &str,
    ) -> Result<PurgeRequest, LedgerError>;

    /// The items that are to be purged.
    async fn items_to_purge(&self) -> Result<Vec<ItemId>, LedgerError>;

    /// Deletes up to `at_most` of the item's orders behind `after`, with the carts that have no other
    /// order; behind the last one its transfers. The order ids are read from left to right, so that
    /// no step passes over the rows that earlier ones have deleted.
    ///
    /// An order whose money is to be returned stays. The last step then says so, and a later pass
    /// begins with `None` again.
    async fn purge(
        &self,
        id: &ItemId,
        after: Option<OrderId>,
        at_most: usize,
    ) -> Result<PurgeStep, LedgerError>;
}

/// What reconcilers remember of the audits that they have made.
#[async_trait]
pub trait Audits: Send + Sync + 'static {
    /// The item's last good audit.
    async fn good_audit(&self, id: &ItemId) -> Result<Option<GoodAudit>, LedgerError>;

    /// Number of orders whose money is to be returned, of each item that has some.
    async fn refunds_due_by_item(&self) -> Result<Vec<(ItemId, u64)>, LedgerError>;

    /// Number of payments whose refund has failed, so that money is due, of each item that has some.
    async fn failed_refunds_by_item(&self) -> Result<Vec<(ItemId, u64)>, LedgerError>;

    /// Stores the item's last good audit.
    async fn note_good_audit(&self, id: &ItemId, audit: GoodAudit) -> Result<(), LedgerError>;
}
